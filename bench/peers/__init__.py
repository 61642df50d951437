"""RingZero and its peers, measured side by side: `./rz bench peers`; README.md says what and how."""
