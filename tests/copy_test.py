#!/usr/bin/env python3
"""`weir cp` and `weir serve-files`: trees there and back, interrupted copies, and peers that mean harm.

    copy_test.py WEIR [TEST]
"""
import contextlib
import hashlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True  # no __pycache__ beside the sources
import command_test  # noqa: E402
from command_test import LOOPBACK, PATIENCE_S, Case, environment, weir  # noqa: E402

MIB = 1 << 20
NOBODY = 65534


def pattern(size, seed=0):
    """Bytes of which no two blocks are the same."""
    chunk = hashlib.sha512(str(seed).encode()).digest()
    return b"".join(hashlib.sha512(chunk + str(i).encode()).digest() * 1024 for i in range(size // 65536 + 1))[:size]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def files_server(root, *arguments, user=None, **keywords):
    process = subprocess.Popen([command_test.WEIR, "serve-files", "--listen", f"{LOOPBACK}:0", "--root", root,
                                *map(str, arguments)], env=environment(**keywords), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user)
    try:
        line = process.stdout.readline()
        found = re.match(r"listening on (127\.0\.0\.1:\d+)", line)
        if not found:
            process.kill()
            raise AssertionError(f"the server said {line!r} and {process.communicate()[1]!r}")
        process.address = found.group(1)
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


class Copy(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "root"
        self.root.mkdir()
        self.here = self.folder / "here"
        self.here.mkdir()

    def make(self, path, data, mode=0o644):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        return path

    def tree(self, top):
        """Everything below: names, kinds, permissions, contents."""
        found = {}
        for path in sorted(top.rglob("*")):
            name = str(path.relative_to(top))
            found[name] = "directory" if path.is_dir() else (path.stat().st_mode & 0o777, digest(path))
        return found

    def make_tree(self):
        top = self.here / "tree"
        self.make(top / "empty", b"")
        self.make(top / "one byte", b"x", 0o600)
        self.make(top / "script.sh", b"#!/bin/sh\n", 0o755)
        self.make(top / "block", pattern(MIB, 1))
        self.make(top / "a bit more", pattern(MIB + 1, 2))
        self.make(top / "deep" / "er" / "still" / "large", pattern(33 * MIB + 777, 3))
        self.make(top / "odd \u00e4 'name'\n", b"odd")
        (top / "nothing in it").mkdir()
        for i in range(30):
            self.make(top / "many" / f"{i}", str(i).encode())
        return top

    def parts(self):
        return [path for path in self.root.rglob(".weir-part-*")]

    # ---- what it is for ----

    def test_a_tree_there_and_back_is_the_same(self):
        top = self.make_tree()
        with files_server(self.root) as peer:
            self.expect_success(weir("cp", "-r", top, f"{peer.address}:"))
            self.assertEqual(self.tree(self.root / "tree"), self.tree(top))
            result = weir("cp", "-r", f"{peer.address}:tree", self.here / "back")
            self.expect_success(result)
            self.assertEqual(self.tree(self.here / "back"), self.tree(top))
            self.assertIn("copied 37 files", result.stdout)
            # Everything that is served, into a directory that is there.
            (self.here / "all").mkdir()
            self.expect_success(weir("cp", "-r", f"{peer.address}:", self.here / "all"))
            self.assertEqual(self.tree(self.here / "all" / "tree"), self.tree(top))
        self.assertEqual(self.parts(), [])
        self.assertEqual((self.root / "tree" / "block").stat().st_mtime_ns, (top / "block").stat().st_mtime_ns)

    def test_single_files_go_where_cp_would_put_them(self):
        first, second = self.make(self.here / "first", b"1"), self.make(self.here / "second", b"2")
        (self.root / "dir").mkdir()
        with files_server(self.root) as peer:
            self.expect_success(weir("cp", first, f"{peer.address}:renamed"))
            self.expect_success(weir("cp", first, second, f"{peer.address}:dir/"))
            self.expect_success(weir("cp", second, f"{peer.address}:renamed"))  # overwritten, as a whole
            self.assertEqual(self.tree(self.root), {"dir": "directory", "dir/first": (0o644, digest(first)),
                                                    "dir/second": (0o644, digest(second)),
                                                    "renamed": (0o644, digest(second))})
            self.expect_success(weir("cp", f"{peer.address}:dir/first", f"{peer.address}:renamed", self.folder))
            self.assertEqual((self.folder / "first").read_bytes(), b"1")
            self.expect_sentence(weir("cp", first, second, f"{peer.address}:renamed"), "not a directory")
            self.expect_sentence(weir("cp", self.here, f"{peer.address}:"), "-r")
            result = weir("cp", f"{peer.address}:nowhere", self.folder)
            self.expect_sentence(result, "nowhere", "no such file")
            self.assertEqual(result.stdout, "")  # nothing was copied
            self.expect_sentence(weir("cp", self.here / "nowhere", f"{peer.address}:"), "nowhere")
            self.expect_sentence(weir("cp", first, second), "peer", code=2)
            # Which side an error is about.
            self.expect_sentence(weir("cp", first, f"{peer.address}:no/such/dir/x"),
                                 f"{peer.address}: 'no/such/dir/x': No such file")
            self.expect_sentence(weir("cp", f"{peer.address}:renamed", self.folder / "no" / "x"),
                                 f"weir: here: '{self.folder}/no': No such file")
            self.expect_sentence(weir("cp", f"{peer.address}:renamed", "/proc/x"), "here, in '/proc': 'x': ")

    def test_who_cannot_be_copied_to_is_told_without_words_of_calls(self):
        file = self.make(self.here / "file", b"x")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((LOOPBACK, 0))
            nobody = f"{LOOPBACK}:{taken.getsockname()[1]}"
        unreachable = weir("cp", file, f"{nobody}:x")
        self.expect_sentence(unreachable, f"cannot reach {nobody}: ")
        with command_test.server() as peer:
            other = weir("cp", file, f"{peer.address}:x")
            self.expect_sentence(other, f"{peer.address} serves no files", "weir serve-files")
        for result in unreachable, other:
            self.assertEqual(result.stdout, "")
            self.assertNotRegex(result.stderr, r"peer_failed|unknown_method|files\.|may have run|deadline")
            self.assertEqual(len(re.findall(r"127\.0\.0\.1:\d+", result.stderr)), 1, result.stderr)

    def test_what_is_there_already_is_not_sent_again(self):
        top = self.make_tree()
        with files_server(self.root) as peer:
            self.expect_success(weir("cp", "-r", top, f"{peer.address}:"))
            result = weir("cp", "-r", top, f"{peer.address}:")
            self.expect_success(result)
            self.assertIn("copied 37 files, 0 B", result.stdout)
            # The same size and time are not believed: other bytes are found.
            victim = self.root / "tree" / "block"
            times = victim.stat()
            victim.write_bytes(pattern(MIB, 99))
            os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
            self.expect_success(weir("cp", "-r", top, f"{peer.address}:"))
            self.assertEqual(self.tree(self.root / "tree"), self.tree(top))

    def test_identities_and_progress(self):
        self.make(self.here / "file", pattern(3 * MIB))
        shared = ["--development", self.folder / "shared"]
        with files_server(self.root, *shared, secret=None) as peer:
            result = weir("cp", self.here / "file", f"{peer.address}:", "--progress", "always", *shared, secret=None)
            self.expect_success(result)
            self.assertIn("3.0 MiB of 3.0 MiB", result.stderr)
            self.assertRegex(result.stderr, r"(?m)^note: .*development identity.*use --identity elsewhere$")
            self.assertEqual(digest(self.root / "file"), digest(self.here / "file"))
            result = weir("cp", self.here / "file", f"{peer.address}:again", "--no-check", *shared, secret=None)
            self.expect_success(result)
            self.assertNotIn("of 3.0 MiB", result.stderr)
            self.assertNotIn("checked", result.stdout)
            # Another secret does not get in.
            self.expect_sentence(weir("cp", self.here / "file", f"{peer.address}:no"), peer.address)
        self.assertFalse((self.root / "no").exists())

    # ---- interrupted ----

    def interrupt(self, *arguments, watched):
        """Kills a copy as soon as it has written some blocks below `watched`; True if there is a part left over."""
        client = subprocess.Popen([command_test.WEIR, "cp", *map(str, arguments)], env=environment(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while client.poll() is None:
            if any(part.stat().st_size >= 8 * MIB for part in watched.glob(".weir-part-*")):
                client.kill()
                break
            time.sleep(0.001)
        client.wait(timeout=PATIENCE_S)
        return any(watched.glob(".weir-part-*"))

    def interrupted(self, source, target, watched, name):
        """A copy of which only a part is there."""
        for _ in range(10):  # a quick machine may be done before it is killed
            if self.interrupt(source, target, watched=watched):
                break
            (watched / name).unlink()
        else:
            self.fail("the copy was always quicker")
        self.assertFalse((watched / name).exists())  # nobody sees half a file
        [part] = watched.glob(".weir-part-*")
        return part

    def resume(self, source, target, watched, name):
        part = self.interrupted(source, target, watched, name)
        with part.open("r+b") as file:  # a block that was damaged meanwhile is found
            file.write(b"not what was sent")
        result = weir("cp", source, target)
        self.expect_success(result)
        self.assertRegex(result.stdout, r"[\d.]+ MiB were there already")
        self.assertEqual(list(watched.glob(".weir-part-*")), [])

    def test_an_interrupted_copy_goes_on_where_it_stopped(self):
        large = self.make(self.here / "large", pattern(200 * MIB))
        wanted = digest(large)
        with files_server(self.root) as peer:
            self.resume(large, f"{peer.address}:large", self.root, "large")
            self.assertEqual(digest(self.root / "large"), wanted)
            large.unlink()
            self.resume(f"{peer.address}:large", large, self.here, "large")
            self.assertEqual(digest(large), wanted)

    def test_a_changed_file_is_not_mixed_with_its_old_part(self):
        large = self.make(self.here / "large", pattern(200 * MIB))
        with files_server(self.root) as peer:
            old = self.interrupted(large, f"{peer.address}:large", self.root, "large")
            self.make(large, pattern(20 * MIB, 5))
            self.expect_success(weir("cp", large, f"{peer.address}:large"))
            self.assertEqual(digest(self.root / "large"), digest(large))
            self.assertEqual(self.parts(), [old])  # stays, as the help says

    def test_a_server_that_goes_away_ends_the_copy_with_a_sentence(self):
        large = self.make(self.here / "large", pattern(200 * MIB))
        for _ in range(10):  # a quick machine may be done before the server is stopped
            with files_server(self.root) as peer:
                client = subprocess.Popen([command_test.WEIR, "cp", large, f"{peer.address}:large"], env=environment(),
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True)
                while client.poll() is None and not self.parts():
                    time.sleep(0.001)
                peer.kill()
                peer.wait(timeout=PATIENCE_S)
                was_interrupted = not (self.root / "large").exists()
                _, errors = client.communicate(timeout=PATIENCE_S)
            if was_interrupted:
                break
            (self.root / "large").unlink()
        else:
            self.fail("the copy was always quicker")
        self.assertEqual(client.returncode, 1, errors)
        self.assertIn("the same command goes on where it stopped", errors)

    # ---- harm ----

    def test_nothing_outside_of_the_root_can_be_named(self):
        outside = self.make(self.folder / "outside" / "secret", b"secret")
        (self.root / "link").symlink_to(outside)
        (self.root / "links").symlink_to(outside.parent)
        file = self.make(self.here / "file", b"mine")
        with files_server(self.root) as peer:
            for path in "../outside/secret", "links/secret", "/etc/passwd", "a/../../outside/secret", "..", "link":
                result = weir("cp", "-r", f"{peer.address}:{path}", self.here / "stolen")
                if path != "link":  # which is there, but is left out
                    self.expect_sentence(result, "refused" if path != "/etc/passwd" else "relative")
                self.assertFalse((self.here / "stolen").exists(), path)
            for path in "../outside/new", "links/new", "/tmp/new", "links/secret", ".weir-part-x":
                self.expect_sentence(weir("cp", file, f"{peer.address}:{path}"), "refused")
            self.assertEqual(self.tree(outside.parent), {"secret": (0o644, digest(outside))})
            # Onto a link: it is replaced, what it points to is not.
            self.expect_success(weir("cp", file, f"{peer.address}:link"))
            self.assertEqual(outside.read_bytes(), b"secret")
            self.assertEqual((self.root / "link").read_bytes(), b"mine")
            result = weir("cp", "-r", f"{peer.address}:", self.here / "all")
            self.expect_sentence(result, "'links' is left out", "1 left out")
            self.assertTrue((self.here / "all" / "link").is_file())  # and all the others are there
        self.assertEqual(self.parts(), [])

    def test_a_link_here_does_not_lead_a_fetched_tree_astray(self):
        self.make(self.root / "dir" / "file", b"theirs")
        outside = self.make(self.folder / "outside" / "file", b"mine")
        (self.here / "dir").symlink_to(outside.parent)
        with files_server(self.root) as peer:
            self.expect_sentence(weir("cp", "-r", f"{peer.address}:", self.here), "not a directory")
        self.assertEqual(outside.read_bytes(), b"mine")

    def test_read_only_and_too_large_are_refused(self):
        file = self.make(self.here / "file", pattern(2 * MIB))
        with files_server(self.root, "--read-only") as peer:
            self.expect_sentence(weir("cp", file, f"{peer.address}:file"), "read only")
            self.expect_sentence(weir("cp", "-r", self.here, f"{peer.address}:dir"), "read only")
        with files_server(self.root, "--largest", MIB) as peer:
            self.expect_sentence(weir("cp", file, f"{peer.address}:file"), "at most 1048576 bytes")
        self.assertEqual(self.tree(self.root), {})

    def test_errors_about_one_file_are_sentences_and_the_rest_is_copied(self):
        self.make(self.here / "tree" / "good", b"good")
        self.make(self.here / "tree" / "taken", b"file")
        (self.root / "tree" / "taken").mkdir(parents=True)
        self.make(self.here / "tree" / "zz", b"last")
        with files_server(self.root) as peer:
            self.expect_sentence(weir("cp", "-r", self.here / "tree", f"{peer.address}:"), "taken",
                                 "is a directory", "1 not copied")
            self.assertEqual((self.root / "tree" / "good").read_bytes(), b"good")
            self.assertEqual((self.root / "tree" / "zz").read_bytes(), b"last")
            self.expect_sentence(weir("cp", self.here / "tree" / "good", f"{peer.address}:no/such/directory"),
                                 "No such file")

    def test_what_the_server_may_not_do_is_a_sentence(self):
        closed = self.make(self.root / "closed", b"x", 0)
        (self.root / "sealed").mkdir(mode=0o555)
        self.folder.chmod(0o755)
        try:  # root may do everything, so it serves as somebody else
            with files_server(self.root, user=NOBODY if os.geteuid() == 0 else None) as peer:
                self.expect_sentence(weir("cp", f"{peer.address}:closed", self.folder), "closed", "permission denied")
                self.expect_sentence(weir("cp", closed if os.geteuid() == 0 else __file__, f"{peer.address}:sealed/x"),
                                     "sealed/x", "permission denied")
        except PermissionError:
            self.skipTest("nobody may not run the weir command where it lies")
        finally:
            (self.root / "sealed").chmod(0o755)
        self.assertEqual(sorted(self.tree(self.root)), ["closed", "sealed"])

    def test_what_cannot_be_looked_at_is_not_left_out_in_silence(self):
        self.make(self.root / "list" / "file", b"x")
        self.folder.chmod(0o755)
        (self.root / "list").chmod(0o744)  # names may be read, but not what is behind them
        try:
            with files_server(self.root, user=NOBODY if os.geteuid() == 0 else None) as peer:
                if os.geteuid() != 0:
                    (self.root / "list").chmod(0o444)
                result = weir("cp", "-r", f"{peer.address}:list", self.here / "copy")
                self.expect_sentence(result, "list/file", "permission denied", "1 not copied")
        except PermissionError:
            self.skipTest("nobody may not run the weir command where it lies")
        finally:
            (self.root / "list").chmod(0o755)

    def test_two_sources_with_one_name_are_not_mixed(self):
        first = self.make(self.here / "a" / "x", pattern(3 * MIB, 1))
        second = self.make(self.here / "b" / "x", pattern(3 * MIB, 2))
        (self.root / "dir").mkdir()
        with files_server(self.root) as peer:
            self.expect_sentence(weir("cp", first, second, f"{peer.address}:dir"), "the same place",
                                 "1 not copied")
        self.assertEqual(digest(self.root / "dir" / "x"), digest(first))

    def test_a_path_that_is_far_too_long_is_a_sentence(self):
        file = self.make(self.here / "file", b"x")
        with files_server(self.root) as peer:
            self.expect_sentence(weir("cp", file, f"{peer.address}:{'x' * 70000}"), "at most 4,096 bytes")
            self.expect_sentence(weir("cp", f"{peer.address}:{'x' * 70000}", self.folder), "4,096 bytes")

    def test_tampering_on_the_way_changes_no_byte(self):
        file = self.make(self.here / "file", pattern(20 * MIB))
        with files_server(self.root) as peer, Meddler(peer.address) as meddler:
            result = weir("cp", file, f"{meddler.address}:file")
            self.assertGreater(meddler.changed, 0)
            self.expect_success(result)
            self.assertEqual(digest(self.root / "file"), digest(file))


class Meddler:
    """Stands between two peers and flips a bit in every fiftieth datagram."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.server = (host, int(port))
        self.changed = 0

    def __enter__(self):
        self.outer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.outer.bind((LOOPBACK, 0))
        self.inner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inner.bind((LOOPBACK, 0))
        for one in self.outer, self.inner:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            one.settimeout(0.2)
        self.address = f"{LOOPBACK}:{self.outer.getsockname()[1]}"
        self.client = None
        self.running = True
        self.threads = [threading.Thread(target=self.run, args=(self.outer,)),
                        threading.Thread(target=self.run, args=(self.inner,))]
        for thread in self.threads:
            thread.start()
        return self

    def run(self, source):
        count = 0
        while self.running:
            try:
                data, sender = source.recvfrom(65536)
            except TimeoutError:
                continue
            except ConnectionRefusedError:
                continue
            count += 1
            if count > 20 and count % 50 == 0:
                data = bytearray(data)
                data[len(data) * 2 // 3] ^= 4
                self.changed += 1
            if source is self.outer:
                self.client = sender
                self.inner.sendto(data, self.server)
            elif self.client:
                self.outer.sendto(data, self.client)

    def __exit__(self, *_):
        self.running = False
        for thread in self.threads:
            thread.join()
        self.outer.close()
        self.inner.close()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    command_test.WEIR = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)


if __name__ == "__main__":
    main()
