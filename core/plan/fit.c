/* fit.c - see fit.h. */
#include "plan/fit.h"

#include <stdio.h>

#include "base/log.h"
#include "launch/environment.h"
#include "plan/estimate.h"

static const double mib = 1024.0 * 1024.0;

/* Memory of a process beside the plan: heap, stacks, page tables, and its measurements. Device
 * reference and model tiny take 1.1 MiB a rank in a control group, device cpu and model mlp 5.7. */
static const uint64_t process_bytes = UINT64_C(6) << 20;

/* The number of a machine's ranks among the first `n`. */
static uint64_t ranks_of(const struct dpb_experiment *experiment, uint32_t n, uint32_t machine)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < n; rank++)
        count += machine == UINT32_MAX || experiment->machines[rank] == machine;
    return count;
}

/* The ranks of a machine, and their launcher. */
static uint64_t processes_of(const struct dpb_experiment *experiment, uint32_t machine)
{
    return ranks_of(experiment, experiment->n_workers + experiment->n_servers, machine) + 1;
}

/* Checkpoints of checkpoint.place = peer: rank 0's launcher keeps them, and each other launcher
 * gets a copy of the one that its ranks continue. */
static uint64_t kept_on(const struct dpb_experiment *experiment, uint32_t machine)
{
    uint32_t rank;
    const bool has_head = machine == UINT32_MAX || experiment->machines[0] == machine;
    uint64_t n = has_head ? DPB_KEPT : 0;
    if (experiment->settings.run.launch != 0) /* a launcher each machine */
        n += has_head ? 0 : 1;
    else if (dpb_environment_is_here(&rank)) /* ... each rank */
        n += processes_of(experiment, machine) - 1 - has_head;
    return n * (dpb_experiment_kept_memory(experiment) / DPB_KEPT);
}

void dpb_fit_of(const struct dpb_experiment *experiment, uint32_t machine, struct dpb_fit *fit)
{
    const uint32_t n_ranks = experiment->n_workers + experiment->n_servers;
    const uint64_t worker = dpb_experiment_memory(experiment, 0);
    const uint64_t server =
        experiment->n_servers > 0 ? dpb_experiment_memory(experiment, experiment->n_workers) : 0;
    *fit = (struct dpb_fit){.worker_bytes = worker, .server_bytes = server};
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        const struct dpb_comm_memory strategy = dpb_experiment_strategy_memory(experiment, rank);
        uint64_t bytes = strategy.host_bytes;
        uint64_t *most = rank < experiment->n_workers ? &fit->worker_bytes : &fit->server_bytes;
        bytes += rank < experiment->n_workers ? worker : server;
        bytes += rank == 0 ? dpb_experiment_collected_memory(experiment) : 0;
        *most = bytes > *most ? bytes : *most;
        if (strategy.device_bytes > fit->device_bytes)
            fit->device_bytes = strategy.device_bytes;
        if (machine == UINT32_MAX || experiment->machines[rank] == machine)
            fit->all_bytes += bytes;
    }
    fit->all_bytes += processes_of(experiment, machine) * process_bytes;
    fit->all_bytes += kept_on(experiment, machine);
}

dpb_status dpb_fit_check(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                         const struct dpb_machine_memory *memory)
{
    const char *whose = memory->limited ? "its control group may have" : "the machine has";
    if (fit->all_bytes > memory->total_bytes &&
        experiment->settings.run.memory == DPB_TOO_LARGE_REFUSE)
        return dpb_fail(
            DPB_UNSUPPORTED,
            "this run needs %.1f MiB of memory, %.1f MiB a worker, and %s %.1f MiB: take "
            "a smaller %s or fewer workers, or run.memory = warn to try it",
            (double)fit->all_bytes / mib, (double)fit->worker_bytes / mib, whose,
            (double)memory->total_bytes / mib,
            experiment->settings.run.mode == DPB_MODE_COMM ? "comm_test.max_bytes" : "run.batch");
    if (fit->all_bytes > memory->total_bytes)
        dpb_warn("memory", "this run needs %.1f MiB of memory and %s %.1f MiB",
                 (double)fit->all_bytes / mib, whose, (double)memory->total_bytes / mib);
    else if (fit->all_bytes > memory->available_bytes)
        dpb_warn("memory",
                 "this run needs %.1f MiB of memory, of which %.1f MiB are free now: others, or "
                 "data that this run has loaded, hold the rest",
                 (double)fit->all_bytes / mib, (double)memory->available_bytes / mib);
    return DPB_OK;
}

dpb_status dpb_fit_processes(const struct dpb_experiment *experiment)
{
    const struct dpb_fit fit = {.worker_bytes = process_bytes,
                                .all_bytes = processes_of(experiment, UINT32_MAX) * process_bytes};
    struct dpb_machine_memory memory;
    dpb_memory_look("", &memory);
    return experiment->n_machines == 1 && fit.all_bytes > memory.total_bytes &&
                   experiment->settings.run.memory == DPB_TOO_LARGE_REFUSE
               ? dpb_fit_check(experiment, &fit, &memory)
               : DPB_OK;
}

dpb_status dpb_fit_build(struct dpb_experiment *experiment, uint32_t rank, bool alone)
{
    const uint64_t n = alone ? 1 : processes_of(experiment, experiment->machines[rank]);
    const uint64_t loaders =
        alone ? 1 : ranks_of(experiment, experiment->n_workers, experiment->machines[rank]);
    struct dpb_machine_memory memory;
    char why[320];
    dpb_memory_look("", &memory);
    const uint64_t used = n * process_bytes;
    uint64_t share = memory.total_bytes > used ? memory.total_bytes - used : 0;
    share /= loaders > 0 ? loaders : 1;
    snprintf(why, sizeof why,
             "data '%s' take more than %.1f MiB, the share of a worker in the %.1f MiB that %s: "
             "take fewer samples or fewer workers, or run.memory = warn to try it",
             experiment->settings.data.name, (double)share / mib, (double)memory.total_bytes / mib,
             memory.limited ? "its control group may have" : "the machine has");
    if (experiment->settings.run.memory == DPB_TOO_LARGE_REFUSE)
        dpb_alloc_limit(share, why);
    dpb_status status = dpb_experiment_build(experiment, rank), first;
    dpb_alloc_limit(UINT64_MAX, NULL);
    /* A source gives its own status where the limit refuses memory. */
    if (status == DPB_NO_MEMORY && dpb_first_error(&first) && first == DPB_UNSUPPORTED)
        status = first;
    return status;
}
