"""PostgreSQL's settings for this machine: sized to its memory, durable, silent on the network."""

import shutil
from pathlib import Path

import psutil

from attune.runtime.postgres_server.plan import ServerPlan, cluster_name, socket_directory

MEGABYTE = 1024 * 1024
CONNECTIONS_MAX = 200

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # looked at, never written
SHARED_MEMORY_BYTES_MIN = 64 * MEGABYTE

# The limit of the container, by the second and the first generation of control groups.
CONTAINER_MEMORY = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

FIXED = {
    "max_connections": str(CONNECTIONS_MAX),
    "work_mem": "8MB",
    "wal_buffers": "16MB",
    "min_wal_size": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    # Statements are short and many: compiling them costs more than it saves.
    "jit": "off",
    # Of solid-state disks, or a cache that holds everything.
    "random_page_cost": "1.1",
    # Queue tables turn over within seconds; their dead rows must go as quickly.
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_scale_factor": "0.05",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%a ",
    "log_checkpoints": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
}


def settings_of(plan: ServerPlan) -> dict[str, str]:
    """Given on the command line, where no edited or restored configuration file can weaken them."""
    durable = "on" if plan.durable else "off"
    directory = str(socket_directory(plan)).replace('"', '""')
    return {
        **FIXED,
        **sized_to(memory_bytes()),
        **shared_memory_with(shared_memory_bytes()),
        "cluster_name": cluster_name(plan.data),
        "listen_addresses": "",
        "port": str(plan.port),
        "unix_socket_directories": f'"{directory}"',
        "unix_socket_permissions": "0700",
        "password_encryption": "scram-sha-256",
        "fsync": durable,
        "synchronous_commit": durable,
        "full_page_writes": durable,
    }


def memory_bytes() -> int:
    limits = [psutil.virtual_memory().total]
    for file in CONTAINER_MEMORY:
        try:
            limits.append(int(file.read_text(encoding="ascii")))
        except (OSError, ValueError):  # another kind of machine, or "max"
            continue
    return min(limits)


def sized_to(memory: int) -> dict[str, str]:
    """An eighth for shared buffers, not the usual quarter: the rest of the platform lives on the same machine."""
    return {
        "shared_buffers": _megabytes(memory // 8, least=32, most=2048),
        "effective_cache_size": _megabytes(memory // 2, least=128, most=65536),
        "maintenance_work_mem": _megabytes(memory // 64, least=32, most=512),
    }


def _megabytes(amount: int, *, least: int, most: int) -> str:
    return f"{min(max(amount // MEGABYTE, least), most)}MB"


def shared_memory_bytes() -> int | None:
    try:
        return shutil.disk_usage(SHARED_MEMORY).total
    except FileNotFoundError:  # not every system has it, and PostgreSQL chooses well on those
        return None


def shared_memory_with(room: int | None) -> dict[str, str]:
    """Files in the data directory instead, where a container gives /dev/shm too little room."""
    cramped = room is not None and room < SHARED_MEMORY_BYTES_MIN
    return {"dynamic_shared_memory_type": "mmap"} if cramped else {}
