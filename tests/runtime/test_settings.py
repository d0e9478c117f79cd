"""What is promised about settings: order of sources, clear errors, secrets kept."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.secret import Secret
from attune.runtime.settings import (
    Isolation,
    LoadedSettings,
    SettingsError,
    TransportKind,
    describe_settings,
    environment_name,
    find_home,
    known_settings,
    load_settings,
    settings_reference,
)

ROOT = Path(__file__).resolve().parents[2]


def load(home: Path, environment: Mapping[str, str] | None = None, **flags: object) -> LoadedSettings:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings(environment={"ATTUNE_HOME": str(home), **(environment or {})}, flags=dotted)


def problems(home: Path, environment: Mapping[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(home, environment, **flags)
    return [str(problem) for problem in caught.value.problems]


def origins_of_problems(environment: Mapping[str, str], config_file: Path | None = None) -> set[str]:
    try:
        load_settings(environment=environment, config_file=config_file)
    except SettingsError as error:
        return {problem.origin for problem in error.problems}
    return set()


def write(home: Path, text: str, name: str = "config.yaml") -> Path:
    path = home / name
    path.write_text(text)
    return path


def test_without_any_source_the_defaults_of_the_specification_apply(tmp_path: Path) -> None:
    settings = load(tmp_path).settings

    assert settings.executor.queue.max_queue_length == 10_000
    assert settings.executor.queue.queue_timeout_seconds == 3600
    assert settings.executor.scheduled_timeout == 300
    assert settings.executor.timeout_check_interval == 60
    assert settings.executor.health_check_interval == 30
    assert settings.worker.heartbeat_interval == 10
    assert settings.message_queue.rabbitmq.worker_queue_ttl_ms == 300_000
    assert settings.message_queue.rabbitmq.dead_letter.exchange == "attune.dlx"
    assert settings.message_queue.transport is TransportKind.POSTGRES
    assert settings.database.url is None
    assert settings.worker.capacity >= 8


def test_each_source_overrides_the_one_before_and_is_named_as_the_origin(tmp_path: Path) -> None:
    write(tmp_path, "api: {port: 1001, host: a}\nlog: {level: debug}\nexecutor: {batch_max: 3}\nenvironment: blue\n")
    write(tmp_path, "# comment\napi:\n  port: 1002\n  host: b\nlog:\n  level: error\n", "config.blue.yaml")

    loaded = load(tmp_path, {"ATTUNE__API__PORT": "1003", "ATTUNE__API__HOST": "c"}, api__port=1004)

    assert loaded.settings.api.port == 1004
    assert loaded.settings.api.host == "c"
    assert loaded.settings.log.level == "error"
    assert loaded.settings.executor.batch_max == 3
    assert loaded.origins["api.port"] == "flag for api.port"
    assert loaded.origins["api.host"] == "ATTUNE__API__HOST"
    assert loaded.origins["log.level"] == f"{tmp_path}/config.blue.yaml:6"
    assert loaded.origins["executor.batch_max"] == f"{tmp_path}/config.yaml:3"
    assert loaded.origins["api.body_max_bytes"] == "default"


def test_a_flag_that_was_not_used_changes_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, {"ATTUNE__API__PORT": "9"}, api__port=None).settings.api.port == 9


def test_a_misspelt_key_is_refused_with_its_line_and_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, "executor:\n  queue:\n    max_queue_lenght: 5\n")

    (told,) = problems(tmp_path)
    assert told.startswith(f"{tmp_path}/config.yaml:3: executor.queue.max_queue_lenght: unknown setting; ")
    assert told.endswith("did you mean executor.queue.max_queue_length?")


def test_a_misspelt_variable_is_refused_with_the_nearest_variable(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, {"ATTUNE__WORKER__CAPASITY": "5"})

    assert problem.startswith("ATTUNE__WORKER__CAPASITY: ")
    assert problem.endswith("did you mean ATTUNE__WORKER__CAPACITY?")


def test_a_key_in_the_wrong_section_is_answered_with_the_right_section(tmp_path: Path) -> None:
    assert "did you mean worker.shutdown_timeout?" in problems(tmp_path, zzzzzzzzzz__shutdown_timeout=5)[0]


def test_all_problems_are_told_together(tmp_path: Path) -> None:
    write(tmp_path, "api:\n  port: none\n  prot: 5\nworker: 7\nlog: [1]\n")

    told = problems(tmp_path, {"ATTUNE__EXECUTOR__BATCH_MAX": "1001"})

    assert [text.split(": ")[1] for text in told] == ["log", "api.port", "api.prot", "worker", "executor.batch_max"]
    assert told[-1].endswith("must be a whole number from 1 to 1000, not 1001")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("api: {port: '8080'}", "must be a whole number from 1 to 65535, not '8080'"),
        ("api: {port: 0x50}", "must be a whole number"),
        ("api: {port: 8080.5}", "must be a whole number"),
        ("api: {port: }", "needs a value"),
        ("message_queue: {publish_status: yes}", "must be true or false, not 'yes'"),
        ("message_queue: {publish_status: 1}", "must be true or false"),
        ("worker: {heartbeat_interval: 0.1}", "must be a number from 0.2 to 300, not 0.1"),
        ("worker: {heartbeat_interval: .nan}", "must be a number"),
        ("worker: {labels: {'a b': c}}", "a label's name has 1 to 63 characters"),
        ("worker: {labels: gpu}", "must be labels such as name=value,other=value, not 'gpu'"),
        ("worker: {isolation: vm}", "must be one of auto, none, user, namespace, not 'vm'"),
        ("api: {host: {a: b}}", "unknown setting"),
        ("api: {port: 1, port: 2}", "given twice; first in line 1"),
        ("outbox: {refuse_above: 10}", "must be below outbox.refuse_above (10), not 40000"),
        ("database: {url: 'mysql://x'}", "must be a URL that begins with postgresql://"),
        ("- a list", "a list is not expected here"),
        ("just text", "unknown setting"),
        ("a: [", "is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path, text)

    assert any(told in problem for problem in problems(tmp_path))


def test_an_endless_alias_is_refused_rather_than_followed(tmp_path: Path) -> None:
    write(tmp_path, "a: &a\n  b: *a\n")

    assert any("nested too deeply" in problem for problem in problems(tmp_path))


def test_a_file_that_is_not_text_or_far_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problems(tmp_path)[0]

    (tmp_path / "config.yaml").write_bytes(b"#" * 2_000_000)
    assert "larger than" in problems(tmp_path)[0]


def test_words_such_as_no_stay_words(tmp_path: Path) -> None:
    write(tmp_path, "worker:\n  run_as: no\n  labels: {gpu: yes, zone: 010, example.com/rack: 'a,b=c'}\n")

    worker = load(tmp_path).settings.worker

    assert worker.run_as == "no"
    assert dict(worker.labels) == {"gpu": "yes", "zone": "010", "example.com/rack": "a,b=c"}


def test_labels_may_be_given_one_by_one_or_together(tmp_path: Path) -> None:
    write(tmp_path, "worker: {labels: {gpu: a100}}")

    one = load(tmp_path, {"ATTUNE__WORKER__LABELS__ZONE": "b"}).settings.worker.labels
    together = load(tmp_path, {"ATTUNE__WORKER__LABELS": "zone=c, rack=7"}).settings.worker.labels

    assert dict(one) == {"gpu": "a100", "zone": "b"}
    assert dict(together) == {"zone": "c", "rack": "7"}


def test_an_empty_section_and_an_empty_file_mean_nothing(tmp_path: Path) -> None:
    write(tmp_path, "worker:\napi:\n  # port: 1\n")
    assert load(tmp_path).settings.api.port == 8080

    write(tmp_path, "")
    assert load(tmp_path).settings.api.port == 8080


def test_a_secret_may_come_from_a_file_without_its_line_break(tmp_path: Path) -> None:
    secret = write(tmp_path, "p@ss/word\n", "password")

    loaded = load(
        tmp_path,
        {"ATTUNE__DATABASE__URL": "postgresql://ana@db:5433/x", "ATTUNE__DATABASE__PASSWORD_FILE": str(secret)},
    )
    database = loaded.settings.database

    assert loaded.origins["database.password"] == f"ATTUNE__DATABASE__PASSWORD_FILE ({secret})"
    assert database.password == Secret("p@ss/word")
    assert database.full_url == Secret("postgresql://ana:p%40ss%2Fword@db:5433/x")


def test_a_secret_given_twice_in_one_source_is_refused(tmp_path: Path) -> None:
    told = problems(tmp_path, {"ATTUNE__DATABASE__PASSWORD": "a", "ATTUNE__DATABASE__PASSWORD_FILE": "/x"})

    assert "give only one of them" in told[0]


def test_a_missing_secret_file_is_named(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, {"ATTUNE__MESSAGE_QUEUE__URL_FILE": "/nowhere/secret"})

    assert told.startswith("ATTUNE__MESSAGE_QUEUE__URL_FILE: message_queue.url_file: ")
    assert told.endswith("cannot read /nowhere/secret: No such file or directory")


def test_only_secrets_have_a_file_variant(tmp_path: Path) -> None:
    assert "unknown setting" in problems(tmp_path, {"ATTUNE__API__PORT_FILE": "/x"})[0]


def test_secrets_appear_in_no_message_repr_or_listing(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        {
            "ATTUNE__DATABASE__URL": "postgresql://ana:hunter2@db/x?password=hunter2",
            "ATTUNE__MESSAGE_QUEUE__URL": "amqp://ana:hunter2@mq/x",
            "ATTUNE__DATABASE__PASSWORD": "hunter2",
        },
    )
    shown = {line.key: line.value for line in describe_settings(loaded)}

    assert shown["database.url"] == "postgresql://ana:****@db/x?password=****"
    assert shown["message_queue.url"] == "amqp://ana:****@mq/x"
    assert shown["database.password"] == "****"
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in problems(tmp_path, {"ATTUNE__DATABASE__URL": "http://ana:hunter2@x"})[0]


def test_the_old_name_of_the_worker_queue_ttl_is_read_in_seconds_with_a_warning(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"ATTUNE__EXECUTOR__WORKER_QUEUE_TTL": "2.5"})

    assert loaded.settings.message_queue.rabbitmq.worker_queue_ttl_ms == 2500
    assert loaded.origins["message_queue.rabbitmq.worker_queue_ttl_ms"] == "ATTUNE__EXECUTOR__WORKER_QUEUE_TTL"
    assert "deprecated" in loaded.warnings[0]


def test_the_new_name_wins_over_the_old_one_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "executor: {worker_queue_ttl: 9}\nmessage_queue: {rabbitmq: {worker_queue_ttl_ms: 7000}}\n")

    assert load(tmp_path).settings.message_queue.rabbitmq.worker_queue_ttl_ms == 7000


def test_a_selected_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, {"ATTUNE_ENVIRONMENT": "prodution"})

    assert told == f"ATTUNE_ENVIRONMENT: environment: selects config.prodution.yaml, which is not in {tmp_path}"


def test_an_environment_name_cannot_reach_another_directory(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, {"ATTUNE_ENVIRONMENT": "../../etc/x"})

    assert "must be 1 to 64 letters" in told


def test_a_configuration_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"other\.yaml: does not exist"):
        load_settings(environment={"ATTUNE_HOME": str(tmp_path)}, config_file=tmp_path / "other.yaml")


@pytest.mark.parametrize("environment", ["development", "docker"])
def test_the_shipped_files_load_both_by_name_and_by_path(tmp_path: Path, environment: str) -> None:
    named = load_settings(
        environment={"ATTUNE_HOME": str(tmp_path), "ATTUNE_ENVIRONMENT": environment}, also_look_in=[ROOT]
    )
    given_path = load_settings(
        environment={"ATTUNE_HOME": str(tmp_path)}, config_file=ROOT / f"config.{environment}.yaml"
    )

    assert named.settings.environment == environment
    assert named.settings.log == given_path.settings.log


def test_variables_used_to_make_tests_fast_are_accepted(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        {
            "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
            "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "5",
            "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL": "1",
            "ATTUNE__EXECUTOR__HEALTH_CHECK_INTERVAL": "1",
            "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": "3000",
            "ATTUNE__WORKER__CAPACITY": "8",
            "ATTUNE__WORKER__ISOLATION": "none",
            "ATTUNE__EXECUTOR__BATCH_MAX": "1",
        },
    ).settings

    assert settings.worker.isolation is Isolation.NONE
    assert settings.worker.capacity == 8


def test_the_home_is_absolute_and_an_empty_variable_counts_as_none() -> None:
    assert find_home({"ATTUNE_HOME": "x/y"}) == Path.cwd() / "x/y"
    assert find_home({"ATTUNE_HOME": ""}) == find_home({})


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()

    assert page == settings_reference(), "run: python -m attune.runtime.settings > docs/reference/settings.md"


def test_every_setting_has_a_meaning_and_a_default_within_its_own_range() -> None:
    for one in known_settings().values():
        assert one.rules.doc.endswith("."), one.key
        if isinstance(one.default, int | float) and one.rules.minimum is not None and one.rules.maximum is not None:
            assert one.rules.minimum <= one.default <= one.rules.maximum, one.key
        numeric = one.type in {int, float}
        assert numeric == (one.rules.minimum is not None) == (one.rules.maximum is not None), one.key


@given(text=st.text(max_size=200), key=st.sampled_from(sorted(known_settings())))
def test_any_text_is_either_accepted_or_refused_by_name(text: str, key: str) -> None:
    name = environment_name(key)

    origins = origins_of_problems(environment={"ATTUNE_HOME": "/nonexistent", name: text})

    assert origins <= {name}


@given(content=st.text(max_size=300))
def test_any_file_is_either_read_or_refused_by_name(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(content)

    origins = origins_of_problems(environment={"ATTUNE_HOME": "/nonexistent"}, config_file=path)

    assert all(origin.startswith(str(path)) for origin in origins)
