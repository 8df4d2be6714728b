/* load_report.c - see load_report.h. */
#include "study/load_report.h"

#include "study/json.h"
#include "study/warnings.h"

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
                     matters(load->stolen_share, load) || load->throttled > 0 || load->hot > 0;
    return json_pack("{s:b, s:f, s:I, s:o, s:o, s:o, s:o, s:I, s:f, s:I}", "disturbed",
                     disturbed,                                             //
                     "seconds", load->seconds,                              //
                     "cpus", (json_int_t)load->cpus,                        //
                     "own_share", dpb_json_real(load->own_share),           //
                     "others_share", dpb_json_real(load->others_share),     //
                     "siblings_share", dpb_json_real(load->siblings_share), //
                     "stolen_share", dpb_json_real(load->stolen_share),     //
                     "throttled", (json_int_t)load->throttled,              //
                     "throttled_s", load->throttled_s,                      //
                     "hot", (json_int_t)load->hot);
}

void dpb_load_warn(const struct dpb_load *load, json_t *warnings)
{
    if (!load)
        return;
    if (matters(load->others_share, load))
        dpb_warnings_add(warnings, "busy_machine",
                         "other processes took %.0f %% of the CPU time of the job's %u hardware "
                         "thread%s while it was timed; quieten the machine",
                         100 * load->others_share, load->cpus, load->cpus == 1 ? "" : "s");
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
}
