/* load_report.c - see load_report.h. */
#include "record/load_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/facts.h"

/* Below it are the system's own daemons. The system counts in ticks of 10 ms: in short runs a few
 * of them are no load. */
static const double others_matter = 0.05, ticks_s = 0.05;

/* False for NaN. */
static bool matters(double share, const struct dpb_load *load)
{
    return share > others_matter && share * load->seconds * load->cpus > ticks_s;
}

json_t *dpb_load_to_json(const struct dpb_load *load)
{
    if (!load)
        return json_null();
    bool disturbed = matters(load->others_share, load) || matters(load->siblings_share, load) ||
                     matters(load->stolen_share, load) || load->throttled > 0 || load->hot > 0 ||
                     load->suspended_s > 0;
    return json_pack("{s:b, s:f, s:I, s:o, s:o, s:o, s:o, s:I, s:f, s:I, s:o}", "disturbed",
                     disturbed,                                             //
                     "seconds", load->seconds,                              //
                     "cpus", (json_int_t)load->cpus,                        //
                     "own_share", dpb_json_real(load->own_share),           //
                     "others_share", dpb_json_real(load->others_share),     //
                     "siblings_share", dpb_json_real(load->siblings_share), //
                     "stolen_share", dpb_json_real(load->stolen_share),     //
                     "throttled", (json_int_t)load->throttled,              //
                     "throttled_s", load->throttled_s,                      //
                     "hot", (json_int_t)load->hot,                          //
                     "suspended_s", dpb_json_real(load->suspended_s));
}

json_t *dpb_core_to_core_to_json(struct dpb_board *board)
{
    const struct dpb_board_about *about = board ? dpb_board_about(board) : NULL;
    return about && isfinite(about->core_to_core_ns)
               ? json_pack("{s:[i, i], s:f}", "cores", about->ends[0], about->ends[1], "ns",
                           about->core_to_core_ns)
               : json_null();
}

/* Against others on the job's cores. dpbench moves neither of two jobs: that would change what it
 * measures. */
static void name_remedy(const struct dpb_neighbour *neighbour, char *text, size_t size)
{
    struct dpb_text remedy = dpb_text_in(text, size);
    if (neighbour->pid == 0) {
        dpb_text_add(&remedy, "quieten the machine");
        return;
    }
    dpb_text_add(&remedy,
                 "another dpbench job (process %d, %s) has the same cores: ", neighbour->pid,
                 neighbour->directory[0] != '\0' ? neighbour->directory : "another user's");
    if (neighbour->halves[0][0] != '\0')
        dpb_text_add(&remedy,
                     "keep the two apart by `taskset -c %s dpbench ...` and `taskset -c %s dpbench "
                     "...`",
                     neighbour->halves[0], neighbour->halves[1]);
    else
        dpb_text_add(&remedy, "run one after the other");
}

void dpb_load_warn(const struct dpb_load *load, json_t *warnings)
{
    if (!load)
        return;
    char remedy[1024];
    name_remedy(&load->neighbour, remedy, sizeof remedy);
    if (matters(load->others_share, load))
        dpb_warnings_add(warnings, "busy_machine",
                         "other processes took %.0f %% of the CPU time of the job's %u hardware "
                         "thread%s while it was timed; %s",
                         100 * load->others_share, load->cpus, load->cpus == 1 ? "" : "s", remedy);
    if (matters(load->siblings_share, load))
        dpb_warnings_add(
            warnings, "busy_siblings",
            "the other hardware threads of the job's cores were busy for %.0f %% of the "
            "time, and share the cores' units; quieten the machine",
            100 * load->siblings_share);
    if (matters(load->stolen_share, load))
        dpb_warnings_add(
            warnings, "stolen_time",
            "the hypervisor gave %.0f %% of the CPU time of the job's %u hardware threads "
            "to others while it was timed",
            100 * load->stolen_share, load->cpus);
    if (load->throttled > 0)
        dpb_warnings_add(
            warnings, "throttled",
            "the control group's CPU quota held the job back %llu times, for %.2f s in "
            "all, while it was timed; take fewer threads or a larger quota",
            (unsigned long long)load->throttled, load->throttled_s);
    if (load->hot > 0)
        dpb_warnings_add(warnings, "hot",
                         "processors slowed down for their heat %llu times while the job was timed",
                         (unsigned long long)load->hot);
    if (load->suspended_s > 0)
        dpb_warnings_add(warnings, "suspended",
                         "a worker's process did not run for %.1f s of the timed steps, which are "
                         "longer by that (timing.suspended): it was stopped or frozen, its machine "
                         "slept, or its clock jumped; repeat the run",
                         load->suspended_s);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static json_t *mhz(uint32_t value)
{
    return value != 0 ? json_integer(value) : json_null();
}

static json_t *clock_to_json(const struct dpb_gpu_clock *first, const struct dpb_gpu_clock *last)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "begin", mhz(first->now), "end", mhz(last->now),
                     "maximal", mhz(last->maximal), "application", mhz(last->application));
}

static json_t *reasons_to_json(const struct dpb_gpu_sample *sample)
{
    if (!sample->reasons_known)
        return json_null();
    json_t *names = json_array();
    for (size_t i = 0; i < DPB_GPU_REASONS; i++)
        if (sample->reasons >> i & 1)
            json_array_append_new(names, json_string(dpb_gpu_reasons[i].name));
    return names;
}

static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? dpb_json_string(text) : json_null();
}

static json_t *timed_to_json(const struct dpb_gpu_use *use)
{
    const struct dpb_gpu_sample *first = &use->first, *last = &use->last;
    double seconds = (double)(last->at_ns - first->at_ns) * 1e-9;
    double energy_j = last->energy_j - first->energy_j;
    json_t *held = json_object();
    for (uint32_t i = 0; i < DPB_GPU_HOLDS; i++)
        json_object_set_new(held, dpb_gpu_holds[i], dpb_json_real(dpb_gpu_held_s(use, i)));
    return json_pack(
        "{s:b, s:f, s:o, s:o, s:{s:o, s:o}, s:{s:o, s:o, s:o, s:o}, s:o, s:{s:o, s:o}, s:o}", //
        "throttled", dpb_gpu_throttled(use),                                                  //
        "seconds", seconds,                                                                   //
        "sm_mhz", clock_to_json(&first->sm, &last->sm),                                       //
        "memory_mhz", clock_to_json(&first->memory, &last->memory),                           //
        "temperature_c", "begin", dpb_json_real(first->temperature_c), "end",                 //
        dpb_json_real(last->temperature_c),                                                   //
        "power_w", "begin", dpb_json_real(first->power_w), "end",                             //
        dpb_json_real(last->power_w), "mean", dpb_json_real(energy_j / seconds), "limit",     //
        dpb_json_real(last->power_limit_w),                                                   //
        "energy_j", dpb_json_real(energy_j),                                                  //
        "reasons", "begin", reasons_to_json(first), "end", reasons_to_json(last),             //
        "held_s", held);
}

json_t *dpb_gpu_to_json(const struct dpb_gpu_use *use)
{
    if (use->pci_address[0] == '\0')
        return json_null();
    json_t *json =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "pci_address", dpb_json_string(use->pci_address),
                  "name", text_or_null(use->name), "driver", text_or_null(use->driver), "problem",
                  text_or_null(use->problem), "unknown", text_or_null(use->unknown));
    if (use->first.known && use->last.known)
        json_object_update_new(json, timed_to_json(use));
    return json;
}

static json_t *one_clock(const struct dpb_gpu_clock *clock)
{
    return json_pack("{s:o, s:o, s:o}", "now", mhz(clock->now), "maximal", mhz(clock->maximal),
                     "application", mhz(clock->application));
}

json_t *dpb_gpu_moment_to_json(const struct dpb_gpu_use *use)
{
    const struct dpb_gpu_sample *first = &use->first;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",                   //
                     "driver", text_or_null(use->driver),                               //
                     "problem", text_or_null(use->problem),                             //
                     "unknown", text_or_null(use->unknown),                             //
                     "sm_mhz", one_clock(&first->sm),                                   //
                     "memory_mhz", one_clock(&first->memory),                           //
                     "reasons", reasons_to_json(first),                                 //
                     "temperature_c",                                                   //
                     first->known ? dpb_json_real(first->temperature_c) : json_null(),  //
                     "power_w",                                                         //
                     first->known ? dpb_json_real(first->power_w) : json_null(),        //
                     "power_limit_w",                                                   //
                     first->known ? dpb_json_real(first->power_limit_w) : json_null()); //
}

/* "power_cap, thermal (held for 3.1 s of 9.8)" */
static void describe_throttle(const struct dpb_gpu_use *use, char *text, size_t bytes)
{
    uint64_t seen = dpb_gpu_throttles(use);
    double longest = 0;
    struct dpb_text how = dpb_text_in(text, bytes);
    for (size_t i = 0; i < DPB_GPU_REASONS; i++)
        if (seen >> i & 1)
            dpb_text_item(&how, ", ", "%s", dpb_gpu_reasons[i].name);
    for (uint32_t i = 0; i < DPB_GPU_HOLDS; i++)
        if (dpb_gpu_held_s(use, i) > longest)
            longest = dpb_gpu_held_s(use, i);
    if (longest > 0)
        dpb_text_item(&how, ", ", "held for %.1f s of %.1f", longest,
                      (double)(use->last.at_ns - use->first.at_ns) * 1e-9);
}

void dpb_gpu_warn(const struct dpb_gpu_use *use, uint32_t rank, json_t *warnings)
{
    char how[256];
    if (use->pci_address[0] == '\0')
        return;
    if (use->problem[0] != '\0')
        dpb_warnings_add(warnings, "gpu_unknown",
                         "of the clocks and the power of rank %u's GPU nothing is known: %s", rank,
                         use->problem);
    else if (use->unknown[0] != '\0')
        dpb_warnings_add(warnings, "gpu_unknown",
                         "of the clocks and the power of rank %u's GPU not all is known: %s", rank,
                         use->unknown);
    if (!use->last.known || !dpb_gpu_throttled(use))
        return;
    describe_throttle(use, how, sizeof how);
    dpb_warnings_add(warnings, "gpu_throttled",
                     "the clocks of rank %u's GPU %s were held down while it was timed: %s; its "
                     "multiprocessors ran at %u of %u MHz in the end",
                     rank, use->pci_address, how, use->last.sm.now, use->last.sm.maximal);
}
