"""Two nodes that are both brokers and controllers, each with an audit log and two log directories."""

import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.meta_properties import directory_uuid
from ottla.protocol.messages import alter_replica_log_dirs as alter
from tests.support.eventually import eventually
from tests.support.genuine_quorum import addresses
from tests.support.quorum_nodes import OttlaNode
from tests.support.raw_client import ask

TOPIC = "t"
QUIET_S = 1.0
"""After which the place of the new replica has been reported, and that report followed."""


def _metadata_log(node: OttlaNode) -> bytes:
    files = sorted((node.log_dir / "__cluster_metadata-0").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def _directory_id(directory: Path) -> bytes:
    lines = (directory / "meta.properties").read_text().splitlines()
    return directory_uuid(next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))).bytes


def test_both_roles_share_an_audit_log_and_a_moved_replica_is_reported(tmp_path: Path) -> None:
    quorum = addresses(1, 2)
    nodes = []
    with ExitStack() as stack:
        for node_id, own in quorum.items():
            audit = {"ottla.audit.file": str(tmp_path / f"audit-{node_id}.log")}
            node = OttlaNode(own, quorum, broker=True, properties=audit, directory=tmp_path / str(node_id))
            node.properties |= {"log.dirs": f"{node.log_dir},{node.log_dir}-2", "metadata.log.dir": str(node.log_dir)}
            stack.callback(node.kill)
            node.start(wait=False)
            nodes.append(node)
        for node in nodes:
            node.wait_until_ready()

        admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])])[TOPIC].result(30)
        directories = [nodes[0].log_dir, Path(f"{nodes[0].log_dir}-2")]
        eventually(lambda: any((each / f"{TOPIC}-0").exists() for each in directories), timeout_s=30)
        (target,) = [each for each in directories if not (each / f"{TOPIC}-0").exists()]
        time.sleep(QUIET_S)
        before = _metadata_log(nodes[0]).count(_directory_id(target))
        moved = alter.AlterReplicaLogDir(
            path=str(target), topics=[alter.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
        )
        answer = ask(nodes[0].bootstrap, alter.AlterReplicaLogDirsRequest(dirs=[moved]), 2)
        assert answer.results[0].partitions[0].error_code == 0
        eventually(lambda: _metadata_log(nodes[0]).count(_directory_id(target)) == before + 1, timeout_s=30)

    # Which of the two noted the topic depends on which of them was the active controller.
    assert any(b"CREATE_TOPICS" in file.read_bytes() for file in tmp_path.glob("audit-*.log"))
