"""Several hosts on one machine: network namespaces, joined by a network that is slow, loses frames and can be cut.

    with Hosts(4, Link(delay_ms=2, loss=0.001, gbit=1)) as hosts:
        subprocess.run([*hosts[1].enter, "ringzero", "train", …])
        hosts.cut(0, 1)
"""
from hosts.network import Host, Hosts, HostsError, Link, why_not

__all__ = ["Host", "Hosts", "HostsError", "Link", "why_not"]
