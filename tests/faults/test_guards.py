"""Each guard is taken out once, in a copy of the source, and a test goes red.

A guard is a line, or a part of one, that stands between a fault and its consequences.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.leftovers import left_running

ROOT = Path(__file__).parents[2]
# Where it stands, what, what instead, and the tests of which one at least has to fail.
GUARDS = (
    (
        "xfbench/command.py",
        '_kept.tell("+", mark)',
        "pass",
        "test_command.py::test_a_killed_process_takes_its_commands_along",
    ),
    (
        "xfbench/command.py",
        "            keeper.end_marked({mark})\n            if isinstance",
        "            if isinstance",
        "test_command.py::test_a_command_that_takes_too_long_is_ended_with_all_its_descendants",
    ),
    (
        "xfbench/running/reply.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "faults/test_worker.py::test_what_is_no_reply_is_told_in_a_line",
    ),
    (
        "xfbench/running/reply.py",
        ", parse_int=_figure",
        "",
        "faults/test_worker.py::test_a_reply_with_anything_at_any_place_becomes_a_record",
    ),
    (
        "xfbench/running/reply.py",
        'if b"\\\\ud" not in content.lower():',
        "if True:",
        "faults/test_worker.py::test_what_is_no_reply_is_told_in_a_line",
    ),
    (
        "xfbench/running/reply.py",
        'return " ".join(text[: 4 * _LONGEST_REASON].split())[:_LONGEST_REASON]',
        "return text",
        "faults/test_worker.py::test_a_reason_is_one_line_of_some_length",
    ),
    (
        "xfbench/written.py",
        "if size > most:",
        "if False:",
        "faults/test_worker.py::test_a_reply_larger_than_any_is_not_read",
    ),
    (
        "xfbench/written.py",
        "if not stat.S_ISREG(found.st_mode):",
        "if False:",
        "faults/test_input.py::test_nobody_waits_for_what_is_no_file",
    ),
    (
        "xfbench/results/merging.py",
        "if path.is_symlink() or not path.is_file():",
        "if not path.is_file():",
        "faults/test_carried.py::test_what_a_link_leads_to_is_not_taken_in",
    ),
    (
        "xfbench/results/store.py",
        "with suppress(FileNotFoundError):",
        "with suppress(KeyError):",
        "faults/test_worker.py::test_whatever_a_worker_makes_of_its_folder_its_record_is_kept",
    ),
    (
        "xfbench/results/store.py",
        "if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:",
        "if False:",
        "faults/test_store.py::test_a_folder_in_which_anybody_could_replace_a_worker_is_refused",
    ),
    (
        "xfbench/errors.py",
        "if error.errno not in _OF_THE_SYSTEM:",
        "if True:",
        "faults/test_store.py::test_a_full_disk_ends_the_run_in_a_line_and_resume_finishes_it",
    ),
    (
        "xfbench/atomic.py",
        "0o666 & ~umask()",
        "0o644",
        "faults/test_store.py::test_files_have_the_mode_that_the_users_mask_says",
    ),
    (
        "xfbench/results/index.py",
        "return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()",
        "return True",
        "faults/test_store.py::test_a_database_that_somebody_else_made_is_not_opened",
    ),
    (
        "xfbench/paths.py",
        "if mode & stat.S_IWOTH:",
        "if False:",
        "environments/test_environment.py::test_a_cache_that_anybody_may_write_is_refused",
    ),
    (
        "xfbench/paths.py",
        "if os.geteuid() != 0 and owners - {0, os.geteuid()}:",
        "if False:",
        "environments/test_environment.py::test_a_cache_that_is_somebody_elses_is_refused",
    ),
    (
        "xfbench/studies/media.py",
        "    paths.only_ours(folder.parent, instead)\n    if not",
        "    if not",
        "faults/test_hostile.py::test_a_studys_data_are_not_taken_from_where_others_may_put_them",
    ),
    (
        "xfbench/worker/checkpoint.py",
        "folder.mkdir(mode=0o700)",
        "folder.mkdir(mode=0o700, exist_ok=True)",
        "faults/test_hostile.py::"
        "test_a_checkpoint_is_written_to_no_folder_that_somebody_else_has_made",
    ),
    (
        "xfbench/equality/jobs.py",
        "except (*WRONG, *_WRONG) as error:",
        "except KeyError as error:",
        "faults/test_hostile.py::test_arrays_with_anything_in_them_are_no_results_and_run_nothing",
    ),
    (
        "xfbench/running/starting.py",
        "(name.startswith(_PREFIXES) and not _SECRET.search(name))",
        "name.startswith(_PREFIXES)",
        "faults/test_secrets.py::test_what_starts_ranks_is_given_no_token",
    ),
    (
        "xfbench/running/job.py",
        "return private.hiding(())(said)",
        "return said",
        "faults/test_secrets.py::test_a_record_names_no_host_and_no_user",
    ),
    (
        "xfbench/results/private.py",
        "_PASSWORD.sub(_SHOWN, text)",
        "text",
        "faults/test_secrets.py::test_what_stands_before_the_host_of_an_address_is_hidden",
    ),
    (
        "xfbench/running/watch.py",
        "self._forget(strangers[0])",
        "pass",
        "faults/test_ranks.py::test_strangers_are_not_believed_and_keep_no_rank_away",
    ),
    (
        "xfbench/running/watch.py",
        r'ended := re.fullmatch(r"ended (-?\d{1,3})", line)',
        r'ended := re.match(r"ended(.*)", line)',
        "faults/test_ranks.py::test_a_line_without_sense_ends_no_watch",
    ),
    (
        "xfbench/running/validity.py",
        "if len(kinds) < 2:",
        "if True:",
        "faults/test_ranks.py::test_ranks_on_nodes_of_different_kinds_are_no_figure_of_either",
    ),
    (
        "xfbench/environments/environment.py",
        "return found if os.access(found.interpreter, os.X_OK) else None",
        "return found",
        "environments/test_environment.py::test_an_environment_that_was_damaged_is_made_again",
    ),
    (
        "xfbench/environments/environment.py",
        "if made != now:",
        "if False:",
        "environments/test_environment.py::test_packages_that_were_changed_since_are_named",
    ),
    (
        "xfbench/toml.py",
        "except RecursionError as error:",
        "except KeyError as error:",
        "faults/test_input.py::test_a_file_of_any_content_is_one_line",
    ),
    (
        "xfbench/toml.py",
        "except ValueError as error:",
        "except tomllib.TOMLDecodeError as error:",
        "faults/test_input.py::test_a_file_of_any_content_is_one_line",
    ),
    (
        "xfbench/experiment.py",
        "if launches > MAX_LAUNCHES:",
        "if False:",
        "faults/test_input.py::test_more_than_anybody_means_is_refused_before_it_is_counted_out",
    ),
    (
        "xfbench/text.py",
        "print(legible_lines(line, most), file=sys.stderr)",
        "print(line, file=sys.stderr)",
        "faults/test_input.py::test_whatever_a_framework_says_moves_no_cursor",
    ),
    (
        "xfbench/worker/prepared.py",
        "except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:",
        "except (OSError, ValueError, LookupError, TypeError) as error:",
        "faults/test_input.py::test_a_manifest_of_any_content_is_damage_and_nothing_else",
    ),
    (
        "xfbench/running/queued.py",
        "and r.id not in before",
        "",
        "running/test_queued.py::test_a_jobs_records_are_known_whatever_its_nodes_clock_says",
    ),
)
named = pytest.mark.parametrize(
    "guard", GUARDS, ids=[f"{Path(file).stem}: {text.strip()[:40]}" for file, text, *_ in GUARDS]
)


@named
def test_each_guard_stands_where_it_is_said_to(guard):
    file, text, instead, _ = guard
    assert (ROOT / file).read_text().count(text) == 1
    assert text != instead


@pytest.mark.long
@named
def test_without_a_guard_a_test_is_red(guard, tmp_path):
    file, text, instead, test = guard
    bare = shutil.ignore_patterns("__pycache__")
    for name in ("xfbench", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=bare)
    for name in ("adapters", "launchers", "workloads"):  # where an installation has them
        shutil.copytree(ROOT / name, tmp_path / "xfbench" / name, ignore=bare)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    mutant = tmp_path / file
    mutant.write_text(mutant.read_text().replace(text, instead))
    command = [*(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"), "--tb=line"]
    try:
        done = subprocess.run(
            [*command, f"--basetemp={tmp_path / 'base'}", f"tests/{test}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        for process in left_running(tmp_path):
            with suppress(psutil.Error):  # it has just ended
                process.kill()
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert " failed" in done.stdout and "skipped" not in done.stdout
