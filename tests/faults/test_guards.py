"""A test fails if any guard is removed from a copy of the source.

A guard is a line, or part of a line, that protects against the consequences of a fault.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.remaining_processes import list_running

ROOT = Path(__file__).parents[2]
# Source file, guard, replacement, and the test that must fail.
GUARDS = (
    (
        "xfbench/base/processes.py",
        '_keeper_process.send_mark("+", mark)',
        "pass",
        "base/test_processes.py::test_commands_end_when_their_starter_is_killed",
    ),
    (
        "xfbench/base/processes.py",
        "            keeper.kill_marked({mark})\n            if isinstance",
        "            if isinstance",
        "base/test_processes.py::test_timeout_ends_a_command_and_its_descendants",
    ),
    (
        "xfbench/model/worker_reply.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "faults/test_worker.py::test_invalid_reply_is_reported_in_one_line",
    ),
    (
        "xfbench/model/worker_reply.py",
        ", parse_int=_parse_exact_integer",
        "",
        "faults/test_worker.py::test_reply_with_any_value_anywhere_becomes_a_record",
    ),
    (
        "xfbench/model/worker_reply.py",
        'if b"\\\\ud" not in content.lower():',
        "if True:",
        "faults/test_worker.py::test_invalid_reply_is_reported_in_one_line",
    ),
    (
        "xfbench/model/worker_reply.py",
        'return " ".join(text[: 4 * _LONGEST_REASON].split())[:_LONGEST_REASON]',
        "return text",
        "faults/test_worker.py::test_reason_is_a_single_line_of_at_most_500_characters",
    ),
    (
        "xfbench/base/shared_files.py",
        "if size > max_bytes:",
        "if False:",
        "faults/test_worker.py::test_oversized_reply_is_not_read",
    ),
    (
        "xfbench/base/shared_files.py",
        "if not stat.S_ISREG(status.st_mode):",
        "if False:",
        "faults/test_input.py::test_named_pipe_as_an_input_file_is_refused",
    ),
    (
        "xfbench/store/merging.py",
        "status = path.lstat()",
        "status = path.stat()",
        "faults/test_carried.py::test_links_and_pipes_in_a_bundle_are_not_imported",
    ),
    (
        "xfbench/store/results_folder.py",
        "with suppress(FileNotFoundError):",
        "with suppress(KeyError):",
        "faults/test_worker.py::test_worker_that_damages_its_folder_still_gets_a_record",
    ),
    (
        "xfbench/store/results_folder.py",
        "paths.require_private(self.folder / name, _OTHER_FOLDER, sticky=True)",
        "pass",
        "faults/test_store.py::test_world_writable_results_folder_is_refused",
    ),
    (
        "xfbench/base/errors.py",
        "if error.errno not in _SYSTEM_ERRNOS:",
        "if True:",
        "faults/test_store.py::test_full_disk_ends_the_run_in_one_line_and_resume_finishes",
    ),
    (
        "xfbench/base/atomic_files.py",
        "0o666 & ~umask()",
        "0o644",
        "faults/test_store.py::test_file_modes_follow_the_umask",
    ),
    (
        "xfbench/store/index.py",
        "return stat.S_ISREG(file_status.st_mode) and file_status.st_uid == os.geteuid()",
        "return True",
        "faults/test_store.py::test_index_of_another_user_is_not_opened",
    ),
    (
        "xfbench/base/paths.py",
        "if mode & stat.S_IWOTH:",
        "if False:",
        "environments/test_environment.py::test_world_writable_cache_is_refused",
    ),
    (
        "xfbench/base/paths.py",
        "if not all(is_trusted_member(owner, status.st_gid) for owner in strangers):",
        "if False:",
        "environments/test_environment.py::test_cache_of_another_user_is_refused",
    ),
    (
        "xfbench/studies/media.py",
        "    paths.require_private(folder.parent, remedy)\n    if not",
        "    if not",
        "faults/test_hostile.py::test_study_data_from_a_shared_folder_are_refused",
    ),
    (
        "xfbench/worker/checkpoint.py",
        "folder.mkdir(mode=0o700)",
        "folder.mkdir(mode=0o700, exist_ok=True)",
        "faults/test_hostile.py::test_checkpoint_is_not_written_to_an_existing_folder",
    ),
    (
        "xfbench/equality/jobs.py",
        "except (*WRONG, *array_files.ERRORS) as error:",
        "except KeyError as error:",
        "faults/test_hostile.py::test_malicious_arrays_are_refused_and_execute_nothing",
    ),
    (
        "xfbench/base/process_variables.py",
        "(is_setting and not _SECRET.search(name))",
        "is_setting",
        "faults/test_secrets.py::test_launcher_environment_contains_no_token",
    ),
    (
        "xfbench/model/privacy.py",
        "return private_names.mask_known_names(text, private)",
        "return text",
        "faults/test_secrets.py::test_record_names_no_host_or_user",
    ),
    (
        "xfbench/model/privacy.py",
        "                return OTHER_PROCESS\n",
        "                return value\n",
        "exchange/test_private_copies.py::test_exported_copies_have_no_private_names",
    ),
    (
        "xfbench/execution/job.py",
        "worker_watch.FILE_NAME if in_file else watch.address",
        "watch.address",
        "launchers/test_mpi.py::test_token_of_the_watch_is_on_no_command_line",
    ),
    (
        "xfbench/base/foreign_names.py",
        "EMAIL.sub(REPLACEMENT, PASSWORD.sub(REPLACEMENT, text))",
        "EMAIL.sub(REPLACEMENT, text)",
        "faults/test_secrets.py::test_url_credentials_are_hidden",
    ),
    (
        "xfbench/execution/watch.py",
        "self._close_connection(unidentified[0])",
        "pass",
        "faults/test_ranks.py::test_watch_ignores_strangers_and_still_accepts_ranks",
    ),
    (
        "xfbench/execution/watch.py",
        r'ended := re.fullmatch(r"ended (-?\d{1,3})", line)',
        r'ended := re.match(r"ended(.*)", line)',
        "faults/test_ranks.py::test_watch_ignores_malformed_lines",
    ),
    (
        "xfbench/execution/validity.py",
        "if len(kinds) < 2:",
        "if True:",
        "faults/test_ranks.py::test_ranks_on_different_kinds_of_nodes_are_invalid",
    ),
    (
        "xfbench/environments/environment.py",
        "return environment if os.access(environment.interpreter, os.X_OK) else None",
        "return environment",
        "environments/test_environment.py::test_damaged_environment_is_created_again",
    ),
    (
        "xfbench/environments/environment.py",
        "if recorded_version != installed_version:",
        "if False:",
        "environments/test_environment.py::test_changed_packages_are_reported_by_name",
    ),
    (
        "xfbench/base/toml_files.py",
        "except RecursionError as error:",
        "except KeyError as error:",
        "faults/test_input.py::test_invalid_file_content_is_reported_in_one_line",
    ),
    (
        "xfbench/base/toml_files.py",
        "except ValueError as error:",
        "except tomllib.TOMLDecodeError as error:",
        "faults/test_input.py::test_invalid_file_content_is_reported_in_one_line",
    ),
    (
        "xfbench/planning/experiment.py",
        "if launches > MAX_LAUNCHES:",
        "if False:",
        "faults/test_input.py::test_excessive_counts_are_refused_before_cells_are_built",
    ),
    (
        "xfbench/base/terminal_text.py",
        "legible = make_lines_legible(line, max_line_length)",
        "legible = line",
        "faults/test_input.py::test_framework_output_is_printed_without_control_characters",
    ),
    (
        "xfbench/worker/prepared.py",
        "except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:",
        "except (OSError, ValueError, LookupError, TypeError) as error:",
        "faults/test_input.py::test_invalid_manifest_is_reported_as_damage",
    ),
    (
        "xfbench/execution/job_queue.py",
        "and r.id not in before",
        "",
        "execution/test_job_queue.py::test_job_records_are_recognized_despite_a_wrong_clock",
    ),
    (
        "xfbench/base/paths.py",
        "if mode & stat.S_IWGRP and not is_trusted and",
        "if False and",
        "environments/test_environment.py::test_group_writable_cache_is_refused",
    ),
    (
        "xfbench/base/paths.py",
        "is_trusted = status.st_gid == trusted_group()",
        "is_trusted = False",
        "faults/test_two_users.py::test_members_of_a_trusted_group_share_a_results_folder",
    ),
    (
        "xfbench/base/paths.py",
        "all(is_trusted_member(owner, status.st_gid) for",
        "all(is_trusted for",
        "faults/test_two_users.py::test_trusted_group_does_not_make_its_folders_owner_a_member",
    ),
    (
        "xfbench/base/paths.py",
        'require_private(folder, "remove it, because others may have changed its files")',
        "pass",
        "faults/test_two_users.py::test_folder_of_another_user_in_the_cache_is_refused",
    ),
    (
        "xfbench/base/shared_files.py",
        "if not is_changed or paths.is_in_trusted_folder(path):",
        "if not is_changed:",
        "faults/test_two_users.py::test_trusted_folders_are_accepted_whatever_their_modes",
    ),
    (
        "xfbench/base/paths.py",
        "(stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH",
        "0 == 1",
        "faults/test_two_users.py::test_results_folder_that_others_control_is_refused",
    ),
    (
        "xfbench/base/paths.py",
        "os.umask(os.umask(0o077) | 0o022)",
        "pass",
        "faults/test_two_users.py::test_new_folders_are_closed_to_the_group_whatever_the_umask",
    ),
    (
        "xfbench/store/results_folder.py",
        '_FOLDERS = ("records", "packs", "certificates", "runs", origins.FOLDER, "tuned", "jobs")',
        '_FOLDERS = ("records", "runs")',
        "faults/test_two_users.py::test_results_folder_that_others_control_is_refused",
    ),
    (
        "xfbench/store/results_folder.py",
        'open_file(self.folder / "README", "xb") as readme',
        '(self.folder / "README").open("wb") as readme',
        "faults/test_two_users.py::test_readme_is_not_written_through_a_link",
    ),
    (
        "xfbench/session.py",
        "        store.require_private()\n        done",
        "        done",
        "faults/test_two_users.py::test_no_command_writes_to_a_folder_that_others_control",
    ),
    (
        "xfbench/store/index.py",
        '        paths.require_private(store.folder, "")',
        "        pass",
        "faults/test_two_users.py::test_index_in_a_folder_of_others_is_neither_made_nor_locked",
    ),
    (
        "xfbench/base/shared_files.py",
        "        flags |= os.O_NOFOLLOW",
        "        pass",
        "datasets/test_hostile_sets.py::test_links_in_an_incomplete_data_set_are_not_followed",
    ),
    (
        "xfbench/base/shared_files.py",
        "if status.st_nlink > 1:",
        "if False:",
        "datasets/test_hostile_sets.py::test_links_in_an_incomplete_data_set_are_not_followed",
    ),
    (
        "xfbench/datasets/writing.py",
        'paths.require_private(partial, f"remove it, or {_OTHER_FOLDER}")',
        "pass",
        "datasets/test_hostile_sets.py::test_traps_in_a_shared_data_folder_are_refused",
    ),
    (
        "xfbench/datasets/writing.py",
        "paths.require_private(target.parent, _OTHER_FOLDER, sticky=True)",
        "pass",
        "datasets/test_hostile_sets.py::test_traps_in_a_shared_data_folder_are_refused",
    ),
    (
        "xfbench/datasets/folder.py",
        "if reason := find_name_defect(name):",
        "if reason := '':",
        "datasets/test_hostile_sets.py::test_hostile_data_set_is_refused_and_writes_nothing_outside",
    ),
    (
        "xfbench/worker/formats/__init__.py",
        "if not stat.S_ISREG(os.fstat(descriptor).st_mode):",
        "if False:",
        "datasets/test_hostile_sets.py::test_file_swapped_before_it_is_opened_is_refused",
    ),
    (
        "xfbench/worker/formats/__init__.py",
        "flags if follow_link else flags | os.O_NOFOLLOW",
        "flags",
        "datasets/test_hostile_sets.py::test_file_swapped_before_it_is_opened_is_refused",
    ),
    (
        "xfbench/worker/stored.py",
        "if length > MAX_IMAGE_BYTES:",
        "if False:",
        "datasets/test_hostile_sets.py::test_tfrecord_of_a_hole_needs_no_memory",
    ),
    (
        "xfbench/worker/prepared.py",
        ", object_pairs_hook=_unique_object",
        "",
        "datasets/test_hostile_sets.py::test_hostile_data_set_is_refused_and_writes_nothing_outside",
    ),
    (
        "xfbench/worker/prepared.py",
        "> MAX_MANIFEST_VALUES:",
        "> 10**12:",
        "datasets/test_hostile_sets.py::test_hostile_data_set_is_refused_and_writes_nothing_outside",
    ),
    (
        "xfbench/exchange/archive.py",
        "    elif not member.size:\n",
        "    elif False:\n",
        "exchange/test_archive.py::test_hostile_archive_is_refused_and_leaves_no_files",
    ),
    (
        "xfbench/bundle.py",
        "_case_numbers(request) > _MAX_CASE_NUMBERS",
        "False",
        "faults/test_carried.py::test_oracle_computes_no_case_of_too_many_ranks",
    ),
    (
        "xfbench/bundle.py",
        "answer, case_folder, _MAX_ARRAY_BYTES)",
        "answer, case_folder)",
        "faults/test_carried.py::test_arrays_of_a_bundle_have_a_limit",
    ),
    (
        "xfbench/worker/formats/__init__.py",
        "file.readline(MAX_LINE_BYTES)",
        "file.readline()",
        "datasets/test_hostile_sets.py::test_hostile_data_set_is_refused_and_writes_nothing_outside",
    ),
    (
        "xfbench/equality/array_files.py",
        "if any(member.compress_type != zipfile.ZIP_STORED for member in members):",
        "if False:",
        "faults/test_hostile.py::test_arrays_that_block_or_expand_are_refused",
    ),
    (
        "xfbench/equality/array_files.py",
        "if start + size > following:",
        "if False:",
        "faults/test_hostile.py::test_arrays_that_block_or_expand_are_refused",
    ),
    (
        "xfbench/store/merging.py",
        "copy_content(path, copy, max_bytes",
        "copy_content(path, copy, permissions=path.stat().st_mode, max_bytes",
        "store/test_merging.py::test_merged_runs_share_only_their_worker_and_nothing_with_the_source",
    ),
    (
        "xfbench/base/terminal_text.py",
        'return invisible_character.encode("unicode_escape").decode("ascii")',
        "return invisible_character",
        "base/test_terminal_text.py::test_legible_escapes_control_characters_and_shortens_text",
    ),
    (
        "xfbench/base/terminal_text.py",
        "_escape_all_invisible(part) + style",
        "part + style",
        "base/test_terminal_text.py::test_printing_escapes_all_but_lines_and_styles",
    ),
    (
        "xfbench/rendering/formats.py",
        "_BLOCK_START.sub(_escape_block_start, line)",
        "line",
        "rendering/test_table_formats.py::test_no_line_of_a_wrapped_paragraph_starts_another_block",
    ),
    (
        "xfbench/rendering/formats.py",
        '_ENTITIES.get(match[0], f"\\\\{match[0]}")',
        "match[0]",
        "rendering/test_table_formats.py::test_markdown_contains_only_headings_tables_and_text",
    ),
    (
        "xfbench/rendering/formats.py",
        "_LATEX.get(char, char) for char",
        "char for char",
        "rendering/test_table_formats.py::test_latex_contains_only_allowed_commands",
    ),
    (
        "xfbench/rendering/formats.py",
        "<p>{markup.escape(text)}</p>",
        "<p>{text}</p>",
        "rendering/test_table_formats.py::test_html_contains_only_tables_headings_and_text",
    ),
    (
        "xfbench/rendering/formats.py",
        '_FORMULA.sub(r"\\1\'", text)',
        "text",
        "rendering/test_table_formats.py::test_csv_contains_no_spreadsheet_formulas",
    ),
    (
        "xfbench/rendering/report/page.py",
        "autoescape=True",
        "autoescape=False",
        "cli/test_hostile_texts.py::test_html_exits_contain_no_element_of_a_record",
    ),
    (
        "xfbench/tuning/reuse.py",
        "quoted = json.dumps(value, ensure_ascii=False)",
        "quoted = f'\"{value}\"'",
        "cli/test_hostile_texts.py::test_settings_of_a_search_are_one_value_each_in_toml",
    ),
    (
        "xfbench/base/processes.py",
        'shlex.join(["env", "-i", *variables, *self.argv])',
        '" ".join(["env", "-i", *variables, *self.argv])',
        "launchers/test_quoting.py::test_shell_line_keeps_words_together",
    ),
    (
        "xfbench/base/private_names.py",
        "        text = HOME_USER.sub(REPLACEMENT, text)\n",
        "",
        "base/test_private_names.py::test_folders_of_users_are_masked_and_found",
    ),
    (
        "xfbench/base/private_names.py",
        "text = _word_pattern([word]).sub(REPLACEMENT, text)",
        "pass",
        "exchange/test_private_copies.py::test_new_documents_have_no_private_names",
    ),
    (
        "xfbench/base/private_names.py",
        "if match := HOME_USER.search(text):",
        "if False:",
        "base/test_private_names.py::test_folders_of_users_are_masked_and_found",
    ),
    (
        "xfbench/model/privacy.py",
        "if path in _COUNTED_FIELDS:\n                return",
        "if False:\n                return",
        "exchange/test_private_copies.py::test_exported_copies_have_no_private_names",
    ),
    (
        "xfbench/base/name_hashes.py",
        'return hmac.new(key, name.encode(errors="surrogateescape"), "sha256").hexdigest()',
        "return hashlib.sha256(name.encode()).hexdigest()",
        "base/test_name_hashes.py::test_host_hash_cannot_be_found_by_trying_names",
    ),
    (
        "xfbench/model/origins.py",
        'os.fsencode(source.absolute().name).decode(errors="backslashreplace")',
        "source.absolute().name",
        "exchange/test_origins.py::test_source_whose_name_is_no_text_is_noted",
    ),
    (
        "xfbench/bundle.py",
        "not member.isreg() or not _MEMBER.fullmatch(member.name)",
        "not member.isreg()",
        "exchange/test_strangers.py::test_a_bundle_writes_no_file_that_a_bundle_does_not_have",
    ),
    (
        "xfbench/bundle.py",
        "if any(member.compress_type not in _USUAL_COMPRESSION for member in members):",
        "if False:",
        "faults/test_carried.py::test_hostile_file_of_a_bundle_is_refused",
    ),
    (
        "xfbench/environments/audit.py",
        "if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):",
        "if False:",
        "environments/test_audit.py::test_file_without_advisories_is_refused_in_one_line",
    ),
    (
        "xfbench/base/paths.py",
        "if depth > MAX_DEPTH:",
        "if False:",
        "exchange/test_strangers.py::test_folders_that_are_nested_deeply_are_refused",
    ),
    (
        "xfbench/worker/formats/folder.py",
        "if len(Path(parent).relative_to(folder).parts) > _MAX_DEPTH:",
        "if False:",
        "datasets/test_hostile_sets.py::test_images_in_folders_that_are_nested_deeply_are_refused",
    ),
    (
        "xfbench/base/toml_files.py",
        "if _has_null_character(content):",
        "if False:",
        "faults/test_input.py::test_invalid_file_content_is_reported_in_one_line",
    ),
    (
        "xfbench/base/toml_files.py",
        "[make_legible(str(part)) for",
        "[str(part) for",
        "faults/test_input.py::test_site_with_an_impossible_variable_is_refused",
    ),
)
for_each_guard = pytest.mark.parametrize(
    "guard", GUARDS, ids=[f"{Path(file).stem}: {text.strip()[:40]}" for file, text, *_ in GUARDS]
)


@for_each_guard
def test_each_guard_is_in_its_file(guard):
    file, text, replacement, _ = guard
    assert (ROOT / file).read_text().count(text) == 1
    assert text != replacement


@pytest.mark.long
@for_each_guard
def test_removal_of_a_guard_fails_a_test(guard, tmp_path):
    file, text, replacement, test = guard
    ignore_caches = shutil.ignore_patterns("__pycache__")
    for name in ("xfbench", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore_caches)
    for name in ("adapters", "launchers", "workloads"):  # as in an installation
        shutil.copytree(ROOT / name, tmp_path / "xfbench" / name, ignore=ignore_caches)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    unguarded = tmp_path / file
    unguarded.write_text(unguarded.read_text().replace(text, replacement))
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", ""),
        "--tb=line",
    ]
    try:
        completed = subprocess.run(
            [*command, f"--basetemp={tmp_path / 'base'}", f"tests/{test}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        for process in list_running(tmp_path):
            with suppress(psutil.Error):  # it may have ended
                process.kill()
    assert completed.returncode == 1, completed.stdout[-2000:] + completed.stderr[-2000:]
    assert " failed" in completed.stdout and "skipped" not in completed.stdout
