/* emulation_report.c - see emulation_report.h. */
#include "record/emulation_report.h"

#include <math.h>

#include "base/json.h"
#include "record/facts.h"

/* Of the timed time. A gradient that is late makes its step so much longer. A thread that waits for
 * a core mostly does so while others of its rank, or the link, are at work: as long as waits are
 * short, the rate moves by a quarter of their share at most (docs/emulating.md). So both let a rate
 * be wrong by 1 %. */
static const double most_late = 0.01, most_delayed = 0.04;

static double larger(double share, int64_t part_ns, int64_t of_ns)
{
    return of_ns > 0 ? fmax(share, (double)part_ns / (double)of_ns) : share;
}

json_t *dpb_emulation_to_json(const struct dpb_experiment *experiment,
                              const struct dpb_journal *const *journals, uint32_t n_ranks)
{
    const struct dpb_emulation *emulation = &experiment->emulation;
    const double dilation = experiment->settings.run.dilation;
    double run_delay = 0, deadlines = 0;
    if (!dpb_experiment_emulates(experiment))
        return json_null();
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        const struct dpb_journal *journal = journals[rank];
        if (!journal)
            continue;
        run_delay = larger(run_delay, journal->run_delay_ns, journal->run_delay_of_ns);
        deadlines = larger(deadlines, journal->late_ns, journal->run_delay_of_ns);
    }
    const double worst = fmax(run_delay / most_delayed, deadlines / most_late);
    const bool late = worst > 1;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:b, s:f, s:f, s:o}",                    //
                     "accelerator", emulation->accelerator, "model", emulation->model,        //
                     "precision", emulation->precision, "kind", emulation->kind,              //
                     "source", emulation->source, "dilation", dilation,                       //
                     "late", late, "run_delay_share", run_delay, "deadline_share", deadlines, //
                     "dilation_needed", late ? json_real(dilation * ceil(worst)) : json_null());
}

void dpb_emulation_warn(const json_t *emulated, json_t *warnings)
{
    if (dpb_json_true(emulated, "late"))
        dpb_warnings_add(
            warnings, "emulation_late",
            "emulation late: threads of a rank waited for a core for %.1f %% of the "
            "time, and gradients were final %.1f %% of it after their deadlines; above "
            "%g %% and %g %% the rate is that of a machine short of cores, and allows no "
            "conclusion: take fewer workers, or run.dilation = %g and `dpbench hosts "
            "--dilation` the same",
            100 * dpb_json_number(emulated, "run_delay_share"),
            100 * dpb_json_number(emulated, "deadline_share"), 100 * most_delayed, 100 * most_late,
            dpb_json_number(emulated, "dilation_needed"));
}

void dpb_emulation_print(const json_t *emulated, FILE *out)
{
    const double dilation = dpb_json_number(emulated, "dilation");
    if (!json_is_object(emulated))
        return;
    fprintf(out, "  %-13s %s, %s: %s\n", "EMULATED", dpb_json_text(emulated, "accelerator", "?"),
            dpb_json_text(emulated, "kind", "?"), dpb_json_text(emulated, "source", "?"));
    if (dilation > 1)
        fprintf(out, "  %-13s all times were %g times as long\n", "dilated", dilation);
    fprintf(out, "  %-13s %.2f %% of the time for a core%s\n", "waited",
            100 * dpb_json_number(emulated, "run_delay_share"),
            dpb_json_true(emulated, "late") ? "; EMULATION LATE: no conclusion" : "");
}
