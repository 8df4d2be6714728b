/* fit.c - see fit.h. */
#include "train/fit.h"

#include <stdio.h>

#include "base/log.h"
#include "train/estimate.h"

static const double mib = 1024.0 * 1024.0;

/* Of a rank beside what is planned: heap, stacks, page tables, and what it measures. Measured with
 * device reference, model tiny and no data: 17.1 MiB of private memory. */
static const uint64_t process_bytes = UINT64_C(17) << 20;

void dpb_fit_of(const struct dpb_experiment *x, uint32_t machine, struct dpb_fit *fit)
{
    const uint32_t n_ranks = x->n_workers + x->n_servers;
    const uint64_t worker = dpb_experiment_memory(x, 0);
    const uint64_t server = x->n_servers > 0 ? dpb_experiment_memory(x, x->n_workers) : 0;
    *fit = (struct dpb_fit){.worker_bytes = worker, .server_bytes = server};
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        const struct dpb_comm_memory strategy = dpb_experiment_strategy_memory(x, rank);
        uint64_t bytes = strategy.host_bytes;
        uint64_t *most = rank < x->n_workers ? &fit->worker_bytes : &fit->server_bytes;
        bytes += rank < x->n_workers ? worker : server;
        *most = bytes > *most ? bytes : *most;
        if (strategy.device_bytes > fit->device_bytes)
            fit->device_bytes = strategy.device_bytes;
        if (machine == UINT32_MAX || x->machines[rank] == machine)
            fit->all_bytes += bytes + process_bytes;
    }
}

dpb_status dpb_fit_check(const struct dpb_experiment *x, const struct dpb_fit *fit,
                         const struct dpb_machine_memory *memory)
{
    const char *whose = memory->limited ? "its control group may have" : "the machine has";
    if (fit->all_bytes > memory->total_bytes && x->settings.run.memory == DPB_TOO_LARGE_REFUSE)
        return dpb_fail(
            DPB_UNSUPPORTED,
            "this run needs %.1f MiB of memory, %.1f MiB a worker, and %s %.1f MiB: take "
            "a smaller %s or fewer workers, or run.memory = warn to try it",
            (double)fit->all_bytes / mib, (double)fit->worker_bytes / mib, whose,
            (double)memory->total_bytes / mib,
            x->settings.run.mode == DPB_MODE_COMM ? "comm_test.max_bytes" : "run.batch");
    if (fit->all_bytes > memory->total_bytes)
        dpb_warn("memory", "this run needs %.1f MiB of memory and %s %.1f MiB",
                 (double)fit->all_bytes / mib, whose, (double)memory->total_bytes / mib);
    else if (fit->all_bytes > memory->available_bytes)
        dpb_warn("memory",
                 "this run needs %.1f MiB of memory, of which %.1f MiB are free now: others hold "
                 "the rest",
                 (double)fit->all_bytes / mib, (double)memory->available_bytes / mib);
    return DPB_OK;
}
