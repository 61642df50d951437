#!/usr/bin/env python3
"""A plain CMake build on another distribution's layout (lib64, packages found by their CMake files
alone, nothing below /usr looked at by itself) and with a LibTorch of the user's own, laid out as its
archive unpacks."""
import glob
import os
import pathlib
import re
import shutil
import unittest

from project import ROOT, TestCase, hiding

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.environ.get("RINGZERO_TORCH", os.path.join(ROOT, ".deps", "site", "torch"))
HEADERS = ("absl", "CLI", "gtest", "hwy", "gmock", "nlohmann", "openssl", "xxhash.h", "zlib.h",
           "zconf.h")
LIBRARIES = ("libabsl_*", "libgtest*", "libhwy*", "libgmock*", "libz.so*", "libcrypto.so*",
             "libssl.so*")
PACKAGES = ("absl", "CLI11", "GTest", "hwy", "nlohmann_json")
DATA = "/usr/share/datasets"
PLATFORM = f"-DCMAKE_PROJECT_INCLUDE={HERE}/other_platform.cmake"


def link(target, place):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.symlink(os.path.realpath(target), place)


class LayoutCase(TestCase):
    def setUp(self):
        super().setUp()
        self.make_distribution()
        self.make_libtorch()

    def make_distribution(self):
        """Debian's packages in <folder>/other/{include,lib64,share}."""
        self.other = self.path("other")
        for header in HEADERS:
            found = glob.glob(f"/usr/include/{header}") + glob.glob(f"/usr/include/*/{header}")
            if not found:
                self.skipTest(f"no {header} in /usr/include, whose packages this test rearranges")
            link(found[0], os.path.join(self.other, "include", header))
        for pattern in LIBRARIES:
            for library in glob.glob(f"/usr/lib/*-linux-gnu/{pattern}"):
                link(library, os.path.join(self.other, "lib64", os.path.basename(library)))
        for package in PACKAGES:
            for there, here, levels in (("share", "share", 0), ("lib/*-linux-gnu", "lib64", 1)):
                folder = os.path.join(self.other, here, "cmake", package)
                for file in glob.glob(f"/usr/{there}/cmake/{package}/*.cmake"):
                    self.copy_package_file(file, folder, levels)

    @staticmethod
    def copy_package_file(file, folder, levels):
        """Its libraries are in lib64 now, and the prefix is `levels` folders nearer."""
        with open(file, encoding="utf-8") as source:
            text = re.sub(r"lib/[a-z0-9_]+-linux-gnu", "lib64", source.read())
        up = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, os.path.basename(file)), "w", encoding="utf-8") as copy:
            copy.write(text.replace(up, "", levels))

    def make_libtorch(self):
        """As libtorch-*.zip unpacks: include/, lib/ with all that it needs, share/cmake/Torch."""
        self.libtorch = self.path("libtorch")
        link(os.path.join(TORCH, "include"), os.path.join(self.libtorch, "include"))
        needed = glob.glob(f"{TORCH}/lib/*.so*")
        for name in ("libcudart.so.*", "libcupti.so.*"):  # in wheels of their own, in one archive
            needed += glob.glob(f"{TORCH}/../nvidia/*/lib/{name}")
        for library in needed:
            link(library, os.path.join(self.libtorch, "lib", os.path.basename(library)))
        if os.path.isdir(f"{TORCH}/share/cmake"):
            shutil.copytree(f"{TORCH}/share/cmake", os.path.join(self.libtorch, "share", "cmake"))

    def options(self):
        return (f"-DCMAKE_PREFIX_PATH={self.other};{self.libtorch}", "-DCMAKE_INSTALL_LIBDIR=lib64",
                PLATFORM, *(f"-DCMAKE_FIND_USE_{where}=OFF" for where in
                            ("CMAKE_SYSTEM_PATH", "SYSTEM_ENVIRONMENT_PATH", "PACKAGE_REGISTRY")),
                # Tools are where they are.
                f"-DCMAKE_CXX_COMPILER={shutil.which('c++')}",
                f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}",
                f"-DPython3_EXECUTABLE={os.path.realpath(shutil.which('python3'))}")

    def check_found(self, build):
        """Every package that CMake found lies below our folder."""
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
            entry = r"^(\w+?)_(?:DIR|INCLUDE_DIR|LIBRARY_RELEASE):\w+=(.*)$"
            found = dict(re.findall(entry, cache.read(), re.M))
        for package in (*PACKAGES, "OPENSSL", "ZLIB", "RINGZERO_TORCH"):
            self.assertIn(package, found)
            self.assertTrue(found[package].startswith(self.folder), f"{package}: {found[package]}")


class Layout(LayoutCase):
    def test_configures_and_builds_a_library(self):
        build = self.path("build")
        printed = self.configure(ROOT, build, *self.options())
        self.assertRegex(printed, rf"TORCH +[0-9.]+ in {re.escape(self.libtorch)}\n")
        self.check_found(build)
        self.build(build, "ringzero_base")
        self.check_what_install_builds(build)

    def check_what_install_builds(self, build):
        """All that `cmake --install` copies is made by the target that it builds first."""
        scripts = [os.path.join(build, "cmake_install.cmake"),
                   *glob.glob(os.path.join(build, "**", "cmake_install.cmake"), recursive=True)]
        texts = [pathlib.Path(script).read_text(encoding="utf-8") for script in scripts]
        self.assertLess(texts[0].index("--target ringzero_package"), texts[0].index("include("))
        copied = set(re.findall(rf"{re.escape(build)}/(\S+\.a|bin/\S+)\"", "".join(texts)))
        self.assertIn("bin/ringzero", copied)
        made = self.run_command("ninja", "-C", build, "-t", "query", "ringzero_package").split()
        self.assertEqual(copied - set(made), set())

    def test_tests_are_optional(self):
        shutil.rmtree(os.path.join(self.other, "lib64", "cmake", "GTest"))
        self.configure(ROOT, self.path("build"), *self.options(), "-DBUILD_TESTING=OFF")
        targets = self.run_command("ninja", "-C", self.path("build"), "-t", "targets", "all")
        self.assertNotIn("_test", targets)

    def test_links_with_the_users_libtorch(self):
        build = self.path("probe")
        probe = os.path.join(build, "libtorch_probe")
        self.configure(os.path.join(HERE, "libtorch_probe"), build,
                       f"-DCMAKE_PREFIX_PATH={self.libtorch}")
        self.build(build)
        self.assertEqual(self.run_command(probe), "threads 1, memory yes\n")
        loaded = self.run_command("ldd", probe)
        self.assertIn(f"{self.libtorch}/lib/libtorch_cpu.so", loaded)
        self.assertNotIn("not found", loaded)


class WholeBuild(LayoutCase):
    def test_builds_installs_and_is_used(self):
        build, prefix = self.path("build"), self.path("prefix")
        self.configure(self.copy_of_the_sources(), build, *self.options(), "-DRINGZERO_WERROR=ON")
        self.check_found(build)
        self.build(build, "ringzero", "data_test")
        self.install(build, prefix)
        self.assertTrue(os.path.exists(f"{prefix}/lib64/cmake/ringzero/ringzeroConfig.cmake"))
        self.assertRegex(self.run_command(f"{prefix}/bin/ringzero", "--version"), r"^ringzero \d")
        # Debian's data sets are not there either, where hiding is allowed: what reads them is
        # skipped, all else passes.
        self.run_command("ctest", "--test-dir", build, "--output-on-failure", "-R",
                         "^(dataset_test|cli_bad_input_test|cli_training_test)$",
                         prefix=hiding(DATA))
        self.check_custom_model(f"{prefix};{self.other}", PLATFORM)

    def copy_of_the_sources(self):
        """So that its program does not replace the one of this checkout."""
        left_out = shutil.ignore_patterns("build", ".deps", ".git")
        return shutil.copytree(ROOT, self.path("ringzero"), symlinks=True, ignore=left_out)


if __name__ == "__main__":
    unittest.main()
