/* binding.c - see binding.h. */
#include "plan/binding.h"

#include "base/log.h"
#include "machine/cgroup.h"
#include "plan/fit.h"
#include "world/world.h"

static void warn_oversubscribed(const struct dpb_cores_job *job, uint32_t threads)
{
    char quota[DPB_CGROUP_QUOTA];
    uint32_t n_cores = 0;
    if (dpb_cores_available(&n_cores) == DPB_OK)
        dpb_warn("oversubscribed",
                 "too few cores: %u worker%s of %u thread%s%s and %u server%s take turns on %u "
                 "core%s%s, so the rate says little of the strategy; take fewer workers, threads, "
                 "communication cores or servers",
                 job->n_workers, job->n_workers == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
                 job->comm_cores > 0 ? " and a communication core each" : "", job->n_servers,
                 job->n_servers == 1 ? "" : "s", n_cores, n_cores == 1 ? "" : "s",
                 dpb_cgroup_name_quota("", n_cores, quota));
}

/* Helpers of all workers here, more than this machine has cores. */
static bool has_too_many_helpers(const struct dpb_experiment *experiment)
{
    uint64_t n_helpers = (uint64_t)experiment->settings.data.threads * dpb_world.place.n_workers;
    char quota[DPB_CGROUP_QUOTA];
    uint32_t n_cores = 0;
    if (!dpb_mode_has_steps(experiment->settings.run.mode) ||
        dpb_cores_available(&n_cores) != DPB_OK || n_helpers <= n_cores)
        return false;
    if (dpb_world.place.index == 0)
        dpb_warn(
            "oversubscribed",
            "data.threads = %lld for each of %u worker%s are more than the %u core%s%s, so the "
            "rate says little of the strategy; take fewer",
            (long long)experiment->settings.data.threads, dpb_world.place.n_workers,
            dpb_world.place.n_workers == 1 ? "" : "s", n_cores, n_cores == 1 ? "" : "s",
            dpb_cgroup_name_quota("", n_cores, quota));
    return true;
}

/* Once a machine, by the first rank there. */
dpb_status dpb_bind_memory(const struct dpb_experiment *experiment)
{
    uint32_t machine = experiment->machines[dpb_world.rank];
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    for (uint32_t rank = 0; rank < dpb_world.rank; rank++)
        if (experiment->machines[rank] == machine)
            return DPB_OK;
    dpb_fit_of(experiment, machine, &fit);
    dpb_memory_look("", &memory);
    return dpb_fit_check(experiment, &fit, &memory);
}

struct dpb_cores_job dpb_binding_job(const struct dpb_experiment *experiment,
                                     const struct dpb_seat *place)
{
    return (struct dpb_cores_job){.n_workers = place->n_workers,
                                  .n_servers = place->n_servers,
                                  .learners = (uint32_t)experiment->settings.run.learners,
                                  .comm_cores = (uint32_t)experiment->settings.run.comm_cores,
                                  .threads = (uint32_t)experiment->settings.device.threads};
}

/* An emulated worker computes nothing: it has no core of its own and takes none from others by
 * spinning. Whether there were enough shows in the result (record/emulation_report.h). */
static dpb_status bind_to_none(struct dpb_binding *binding)
{
    *binding = (struct dpb_binding){.threads = 1, .place_threads = 1};
    dpb_world.may_spin = false;
    return dpb_cores_available(&binding->n_cores);
}

dpb_status dpb_bind(const struct dpb_experiment *experiment, struct dpb_binding *binding)
{
    if (dpb_experiment_emulates(experiment))
        return bind_to_none(binding);
    const struct dpb_seat *place = &dpb_world.place;
    const struct dpb_cores_job job = dpb_binding_job(experiment, place);
    struct dpb_cores_share share;
    DPB_TRY(dpb_cores_bind(&job, place->index, &share));
    const bool oversubscribed = share.n == 0;
    *binding = (struct dpb_binding){
        .threads = share.threads, .place_threads = share.place_threads, .n_cores = share.n_all};
    dpb_world.may_spin = !oversubscribed;
    if (oversubscribed && place->index == 0)
        warn_oversubscribed(&job, binding->threads);
    binding->oversubscribed = oversubscribed || has_too_many_helpers(experiment);
    return DPB_OK;
}
