"""What a worker makes ready on its machine before it registers: what its runners stand on, and what they can run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from attune.worker.containers.engine import Engine
from attune.worker.containers.offer import offer_containers
from attune.worker.environments.build import Builder
from attune.worker.environments.store import Environments
from attune.worker.forking.pool import ForkServers
from attune.worker.plan import WorkerPlan
from attune.worker.runners.script import ScriptPlan
from attune.worker.runtimes.offer import FORK_SERVER, Ground, Offer, lay_out, probe_runtimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Made once at the start; `close` ends what of it runs."""

    scripts: ScriptPlan
    environments: Environments
    fork_servers: ForkServers
    offer: Offer
    # What makes containers, if anything does.
    engine: Engine | None

    async def close(self) -> None:
        await self.environments.close()
        await self.fork_servers.close()
        self.scripts.launcher.stop()


async def equip(plan: WorkerPlan, scripts: ScriptPlan, *, variables: Mapping[str, str] = os.environ) -> Equipment:
    """Ask the machine what there is; `variables` say where packages come from, and containers."""
    marking, children = scripts.marking, scripts.children
    environments = Environments(
        plan.environments,
        build_seconds_max=plan.environment_seconds_max,
        unused_days_max=plan.environment_unused_days_max,
    )
    programs = lay_out(plan.environments / "programs")
    marker = f"{marking.worker_prefix}fork-server/"
    fork_servers = ForkServers(scripts.launcher, children, programs / FORK_SERVER, marker=marker)
    engine = await offer_containers(plan.container, marking, children, variables=variables)
    ground = Ground(
        plan=plan,
        scripts=scripts,
        environments=environments,
        builder=Builder(marking, children),
        programs=programs,
        fork_servers=fork_servers,
        variables=variables,
        engine=engine,
    )
    return Equipment(
        scripts=scripts,
        environments=environments,
        fork_servers=fork_servers,
        offer=await probe_runtimes(ground),
        engine=engine if isinstance(engine, Engine) else None,
    )
