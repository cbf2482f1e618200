"""Commands that run as other users of this machine.

The other users may read everything, so that they can start the interpreter of these tests wherever
it is. They may write only what their own rights allow.
"""

import os
import pwd
import shutil
import subprocess
import sys
import traceback

import pytest

ALICE, MALLORY = 65531, 65532
SHARED_GROUP = 100  # "users" on most systems


def require_other_users():
    """Skip the test if this process cannot run commands as other users."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("other users need root and setpriv")


def require_two_accounts_of_a_group():
    """Return the ids of a group and of two users with that primary group, or skip the test."""
    users = {}
    for account in pwd.getpwall():
        if account.pw_uid and account.pw_gid:
            users.setdefault(account.pw_gid, set()).add(account.pw_uid)
    for group, members in users.items():
        if len(members) > 1:
            return group, *sorted(members)[:2]
    pytest.skip("no group has two accounts")


def run_as(user, *arguments, folder, groups=(), umask=0o022, **variables):
    """Run the `xfbench` command with these arguments as `user` in `folder`."""
    require_other_users()
    chosen = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    return subprocess.run(
        [
            *("setpriv", f"--reuid={user}", f"--regid={user}", chosen),
            *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
            *(sys.executable, "-P", "-m", "xfbench", *map(str, arguments)),
        ],
        cwd=folder,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("XFBENCH_")},
            "HOME": str(folder / f"home-{user}"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        umask=umask,
    )


def check_as(user, check):
    """Call `check` in a process of `user`, who may read only what their own rights allow.

    Everything that `check` imports must have been imported before.
    """
    require_other_users()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            check()
            status = 0
        except BaseException:  # the tests of the other process must not go on here
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def assert_refused(completed, *words):
    """Assert that the command was refused, and that its last line says why, with `words`."""
    assert completed.returncode in (1, 2), completed.stderr
    assert "Traceback" not in completed.stderr
    line = completed.stderr.splitlines()[-1]
    assert line.startswith("xfbench: ")
    for word in words:
        assert word in line


def list_tree(folder):
    """Return the owner, the mode and the content of everything below `folder`."""
    return {
        str(path): (
            path.lstat().st_uid,
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.is_file() and path.read_bytes(),
        )
        for path in (folder, *folder.rglob("*"))
    }
