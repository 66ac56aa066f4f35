"""Three real nodes whose leaders are killed and frozen: one leader per term, and late decisions are refused."""

import signal
from collections.abc import Iterator

import pytest

from holdfast.common.ids import new_xid
from tests.system.cluster.processes import TcProcesses, tc_processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcProcesses]:
    """One for all tests: starting it takes longer than any of them, and each leaves it whole."""
    with tc_processes(tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("losses", [1, pytest.param(30, marks=pytest.mark.long)])
def test_every_lost_leader_is_followed_by_one_of_a_later_term(cluster: TcProcesses, losses: int) -> None:
    leader, term = cluster.agreed(cluster.nodes)
    leaders_before = len(cluster.leaders)
    for _ in range(losses):
        leader.kill()
        others = [node for node in cluster.nodes if node is not leader]
        new_leader, new_term = cluster.agreed(others, term)
        leader.start(cluster.urls)
        leader, term = cluster.agreed(cluster.nodes, new_term - 1)
        assert new_leader in others

    assert len(cluster.leaders) >= leaders_before + losses


def test_a_leader_that_was_frozen_is_refused_when_it_wakes_up(cluster: TcProcesses) -> None:
    leader, old_term = cluster.agreed(cluster.nodes)
    others = [node for node in cluster.nodes if node is not leader]
    leader.send(signal.SIGSTOP)
    new_leader, new_term = cluster.agreed(others, old_term)
    leader.send(signal.SIGCONT)

    late = {"txn_id": new_xid(), "tc_term": old_term, "participants": [{"namespace": "n", "key": "k"}]}
    answers = [node.ask("/v1/txn/commit", late) for node in others]

    for answer in answers:
        assert (answer.status_code, answer.json()["error"]) == (409, "tc_term_stale"), answer.text
        assert answer.json()["leader_endpoint"] == new_leader.url
    cluster.agreed(cluster.nodes, new_term - 1)


def test_terms_outlive_all_nodes(cluster: TcProcesses) -> None:
    _, term = cluster.agreed(cluster.nodes)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start(cluster.urls)

    cluster.agreed(cluster.nodes, term)


def test_the_command_line_shows_members_and_leader(cluster: TcProcesses) -> None:
    leader, term = cluster.agreed(cluster.nodes)

    listed = cluster.tc("list")
    status = cluster.status()
    left = cluster.tc_leave(leader)

    assert listed.stdout.split() == sorted(cluster.urls)
    assert status["has_leader"] is True
    assert {node["leader_endpoint"] for node in status["nodes"]} == {leader.url}
    assert {node["term"] for node in status["nodes"]} == {term}
    assert left.stdout.split() == sorted(url for url in cluster.urls if url != leader.url), left.stderr
    cluster.agreed([node for node in cluster.nodes if node is not leader], term)
    leader.kill()
    leader.start(cluster.urls)
    cluster.agreed(cluster.nodes, term)
