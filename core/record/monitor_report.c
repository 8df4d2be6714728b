/* monitor_report.c - see monitor_report.h. */
#include "record/monitor_report.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "measure/journal.h"
#include "measure/monitor.h"
#include "measure/trace.h"
#include "record/gpus_report.h"
#include "record/summary.h"
#include "record/turns.h"

static const struct dpb_monitor_series *series_of(const struct dpb_experiment *experiment,
                                                  struct dpb_board *board, uint32_t rank)
{
    size_t bytes;
    const uint8_t *journal = dpb_board_journal(board, rank, &bytes);
    return (const void *)(journal + bytes - dpb_monitor_bytes(&experiment->settings) -
                          dpb_trace_bytes(&experiment->settings));
}

/* ---- one series ---------------------------------------------------------------------------- */

typedef const struct dpb_monitor_sample sample_t;

/* Adds the numbers of the interval between two samples to the lists of these names; NaN: not
 * reported. */
typedef void put_interval(sample_t *from, sample_t *to, json_t *lists);

static void put(json_t *lists, const char *name, double number)
{
    if (!json_object_get(lists, name))
        json_object_set_new(lists, name, json_array());
    json_array_append_new(json_object_get(lists, name), dpb_json_real(number));
}

static double seconds_of(sample_t *from, sample_t *to)
{
    return (double)(to->at_ns - from->at_ns) * 1e-9;
}

/* If an interface or a disk disappears, its count does, too. */
static double per_s(uint64_t before, uint64_t now, double seconds)
{
    return now < before ? NAN : (double)(now - before) / seconds;
}

static void put_machine(sample_t *from, sample_t *to, json_t *lists)
{
    const struct dpb_usage *a = &from->machine, *b = &to->machine;
    const double seconds = seconds_of(from, to);
    const bool all_live = b->living >= a->living;
    const double own_cpus =
        all_live ? fmax(0, (double)(b->own_ns - a->own_ns) * 1e-9) / seconds : NAN;
    const double busy_cpus = (double)(b->busy_ns - a->busy_ns) * 1e-9 / seconds;
    const bool busy_known = a->busy_ns >= 0 && b->busy_ns >= 0;
    put(lists, "seconds", (double)to->at_ns * 1e-9);
    put(lists, "own_cpus", own_cpus);
    put(lists, "others_cpus", busy_known && all_live ? fmax(0, busy_cpus - own_cpus) : (double)NAN);
    put(lists, "memory_bytes",
        b->memory_bytes < UINT64_MAX ? (double)b->memory_bytes : (double)NAN);
    put(lists, "own_memory_bytes", (double)b->own_memory_bytes);
    put(lists, "received_bytes_per_s", per_s(a->received_bytes, b->received_bytes, seconds));
    put(lists, "sent_bytes_per_s", per_s(a->sent_bytes, b->sent_bytes, seconds));
    put(lists, "loopback_bytes_per_s", per_s(a->loopback_bytes, b->loopback_bytes, seconds));
    put(lists, "read_bytes_per_s", per_s(a->read_bytes, b->read_bytes, seconds));
    put(lists, "written_bytes_per_s", per_s(a->written_bytes, b->written_bytes, seconds));
    put(lists, "package_w", (b->package_j - a->package_j) / seconds);
}

static void put_gpu(sample_t *from, sample_t *to, json_t *lists)
{
    const struct dpb_gpu_sample *gpu = &to->gpu;
    (void)from;
    put(lists, "seconds", (double)to->at_ns * 1e-9);
    put(lists, "sm_mhz", gpu->sm.now > 0 ? (double)gpu->sm.now : (double)NAN);
    put(lists, "memory_mhz", gpu->memory.now > 0 ? (double)gpu->memory.now : (double)NAN);
    put(lists, "power_w", gpu->power_w);
    put(lists, "temperature_c", gpu->temperature_c);
}

/* The number of a rank's known samples, up to the last. A GPU's samples end with its timed
 * steps. */
static uint64_t n_known(const struct dpb_monitor_series *series, bool gpu)
{
    uint64_t n = __atomic_load_n(&series->n, __ATOMIC_ACQUIRE);
    n = n < DPB_MONITOR_SAMPLES ? n : DPB_MONITOR_SAMPLES;
    while (gpu && n > 0 && !series->samples[n - 1].gpu.known)
        n--;
    return n;
}

/* A series of one sample has empty lists. */
static void add_lists(const struct dpb_monitor_series *series, uint64_t first, uint64_t n,
                      put_interval *put_one, json_t *json)
{
    static sample_t none;
    json_t *lists = json_object();
    put_one(&none, &none, lists);
    dpb_each_member(lists, name, list)
        json_array_clear(list);
    for (uint64_t i = first + 1; i < n; i++)
        if (seconds_of(&series->samples[i - 1], &series->samples[i]) > 0)
            put_one(&series->samples[i - 1], &series->samples[i], lists);
    json_object_update_new(json, lists);
}

static json_t *machine_to_json(const struct dpb_monitor_series *series, uint32_t rank,
                               const struct dpb_status_page *page)
{
    const uint64_t n = n_known(series, false);
    json_t *json = json_pack(
        "{s:I, s:o, s:I, s:I, s:o, s:f, s:f}", "machine", (json_int_t)page->machine, "host",
        dpb_json_string(page->host), "rank", (json_int_t)rank, "cpus",
        (json_int_t)(n > 0 ? series->samples[0].machine.cpus : 0), "package_j",
        dpb_json_real(n > 0 ? series->samples[n - 1].machine.package_j : NAN), "interval_s",
        (double)series->interval_ns * 1e-9, "monitor_cpu_s", (double)series->cpu_ns * 1e-9);
    add_lists(series, 0, n, put_machine, json);
    return json;
}

/* The GPU is sampled from the first step to the last timed one. A driver may fail at first. */
static json_t *gpu_to_json(const struct dpb_monitor_series *series, uint32_t rank)
{
    const uint64_t n = n_known(series, true);
    uint64_t first = 0;
    while (first < n && !series->samples[first].gpu.known)
        first++;
    if (first >= n)
        return NULL;
    json_t *json = json_pack("{s:I, s:f, s:f}", "rank", (json_int_t)rank, "interval_s",
                             (double)series->interval_ns * 1e-9, "monitor_cpu_s",
                             (double)series->cpu_ns * 1e-9);
    add_lists(series, first, n, put_gpu, json);
    return json;
}

/* ---- the document -------------------------------------------------------------------------- */

/* The sum of a number over the list, each host once; NaN where one is missing. */
static double sum_of(const json_t *list, const char *name)
{
    double sum = json_array_size(list) > 0 ? 0 : NAN;
    dpb_each_item(list, i, entry) {
        const char *host = dpb_json_text(entry, "host", NULL);
        bool seen = false;
        for (size_t k = 0; host && k < i && !seen; k++)
            seen = dpb_json_is(json_array_get(list, k), "host", host);
        if (!seen)
            sum += dpb_json_number(entry, name);
    }
    return sum;
}

/* The samples of the workers: of their timed steps if `timed`, else of all; of a job in turns,
 * within its series. */
static double samples_trained(const struct dpb_experiment *experiment, struct dpb_board *board,
                              bool timed)
{
    const struct dpb_monitor_series *series = series_of(experiment, board, 0);
    double steps = 0, seconds;
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        const uint64_t n = dpb_journal_records(journal);
        uint64_t from = timed ? journal->timed_from : 0;
        if (series->to_ns > 0)
            steps +=
                dpb_turns_steps(journal, NULL, series->from_ns, series->to_ns, &from, &seconds);
        else
            steps += n > from ? (double)(n - from) : 0;
    }
    return steps * (double)experiment->global_batch / experiment->n_workers;
}

static bool lower_rank_shares_gpu(struct dpb_board *board, uint32_t rank)
{
    for (uint32_t r = 0; r < rank; r++)
        if (dpb_gpus_same(board, r, rank))
            return true;
    return false;
}

/* Around the timed steps, each GPU once: its counter includes all workers on it. NaN if a GPU does
 * not report it, or there is none. */
static double energy_of_gpus(const struct dpb_experiment *experiment, struct dpb_board *board)
{
    double energy_j = 0;
    bool any = false;
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        const struct dpb_gpu_use *use = &journal->gpu;
        if (use->pci_address[0] == '\0' || lower_rank_shares_gpu(board, rank))
            continue;
        energy_j += use->last.known ? use->last.energy_j - use->first.energy_j : NAN;
        any = true;
    }
    return any ? energy_j : NAN;
}

json_t *dpb_monitor_to_json(const struct dpb_experiment *experiment, struct dpb_board *board)
{
    if (experiment->settings.run.monitor_ns == 0 || !board)
        return json_null();
    json_t *machines = json_array(), *gpus = json_array();
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
        const struct dpb_monitor_series *series = series_of(experiment, board, rank);
        if (series->of_machine)
            json_array_append_new(machines,
                                  machine_to_json(series, rank, dpb_board_page(board, rank)));
        json_t *gpu = gpu_to_json(series, rank);
        if (gpu)
            json_array_append_new(gpus, gpu);
    }
    const double packages_j = sum_of(machines, "package_j"),
                 gpus_j = energy_of_gpus(experiment, board);
    return json_pack("{s:o, s:o, s:{s:o, s:o}}", "machines", machines, "gpus", gpus,
                     "joules_per_sample", "packages",
                     dpb_json_real(packages_j / samples_trained(experiment, board, false)), "gpus",
                     dpb_json_real(gpus_j / samples_trained(experiment, board, true)));
}

/* ---- for people ---------------------------------------------------------------------------- */

/* By the length of the intervals: the last one is cut off. Of those that are known. */
static double mean_of(const json_t *machine, const char *name)
{
    const json_t *values = json_object_get(machine, name),
                 *ends = json_object_get(machine, "seconds");
    double sum = 0, known_s = 0, begin_s = 0;
    dpb_each_item(values, i, value) {
        const double at_s = json_number_value(json_array_get(ends, i));
        sum += json_number_value(value) * (at_s - begin_s); /* 0 of null */
        known_s += json_is_number(value) ? at_s - begin_s : 0;
        begin_s = at_s;
    }
    return sum / known_s;
}

void dpb_monitor_print(const json_t *document, FILE *out)
{
    dpb_each_item(dpb_json_at(document, "monitor.machines"), i, machine)
        fprintf(
            out,
            "  %-13s %s: the job %.2f CPUs, others %.2f, of %.0f; %.1f MB/s in, %.1f out, disks "
            "%.1f\n",
            i == 0 ? "monitor" : "", dpb_json_text(machine, "host", "?"),
            mean_of(machine, "own_cpus"), mean_of(machine, "others_cpus"),
            dpb_json_number(machine, "cpus"), mean_of(machine, "received_bytes_per_s") / 1e6,
            mean_of(machine, "sent_bytes_per_s") / 1e6,
            (mean_of(machine, "read_bytes_per_s") + mean_of(machine, "written_bytes_per_s")) / 1e6);
    const double packages = dpb_json_number(document, "monitor.joules_per_sample.packages");
    const double gpus = dpb_json_number(document, "monitor.joules_per_sample.gpus");
    if (isfinite(packages))
        fprintf(out, "  %-13s %.3g J a sample, by the processors\n", "energy", packages);
    if (isfinite(gpus))
        fprintf(out, "  %-13s %.3g J a sample, by the GPUs\n", isfinite(packages) ? "" : "energy",
                gpus);
}
