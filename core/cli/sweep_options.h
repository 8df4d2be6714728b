/*
 * sweep_options.h - the sections that belong to no single run: [sweep] runs all cells of a product
 * of settings, [tune] those that its search needs, [published] has figures of others for cells of
 * the [sweep]. Keys in `rows` are the section's own, all others are axes. The program
 * dpbench-sweep reads them (study/sweep); dpbench knows their options and whether they are there.
 */
#ifndef DPB_CORE_CLI_SWEEP_OPTIONS_H
#define DPB_CORE_CLI_SWEEP_OPTIONS_H

#include "base/config.h"
#include "base/settings.h"

enum { DPB_STUDY_SWEEP, DPB_STUDY_TUNE, DPB_STUDY_PUBLISHED, DPB_STUDIES };
extern const struct dpb_settings_section dpb_studies[DPB_STUDIES];

enum { DPB_SWEEP_USUAL_REPEATS = 3 };
enum dpb_objective { DPB_OBJECTIVE_RATE, DPB_OBJECTIVE_TARGET };

/* The values of the rows. Texts are @borrowed from the configuration. */
struct dpb_sweep_options {
    int64_t repeats, accuracy, retry_disturbed, seeds, machines, launch_limit_ns;
    int64_t limit_ns;        /* 0: none */
    int64_t retry_budget_ns; /* -1: not given */
    int64_t budget_ns;       /* of turns; 0: not given */
    const char *when, *over, *turns;
    const char *launch; /* "": dpbench itself */
    bool skip_refused;
    int objective;    /* enum dpb_objective */
    double threshold; /* percent */
};

/* Whether the configuration has a section of dpb_studies; a [tune]. */
bool dpb_sweep_wanted(const struct dpb_config *config);
bool dpb_tune_wanted(const struct dpb_config *config);

#endif
