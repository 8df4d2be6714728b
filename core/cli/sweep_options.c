/* sweep_options.c - see sweep_options.h. */
#include "cli/sweep_options.h"

#include <stddef.h>
#include <string.h>

#include "base/settings.h"

/* clang-format off */
#define AT(field) .offset = offsetof(struct dpb_sweep_options, field)
#define ROWS_OF_BOTH                                                                               \
    {"retry_budget", DPB_OPT_TIME, "s", NULL, 0, 1e15, NULL, AT(retry_budget_ns),                  \
     "how long repeats of disturbed runs may take in all; by default as long as the other runs"},  \
    {"seeds", DPB_OPT_INT, NULL, "0", 0, 1000, NULL, AT(seeds),                                    \
     "so many repeats, each with a run.seed of its own, from run.seed upwards; 0: all with the "   \
     "same"},                                                                                      \
    {"launch", DPB_OPT_STRING, NULL, "", 0, 0, NULL, AT(launch),                                   \
     "starts each cell: mpirun -np {ranks} --map-by ppr:{per_machine}:node, or srun -n {ranks} "   \
     "--mpi=pmix; {workers}, {servers}, {machines}; empty: dpbench itself, on this machine"},      \
    {"machines", DPB_OPT_INT, NULL, "0", 0, DPB_JOB_RANKS, NULL,                                   \
     AT(machines),                                                                                 \
     "how many machines {per_machine} and {machines} of launch divide a cell's ranks among; 0: "   \
     "not given"},                                                                                 \
    {"launch_limit_s", DPB_OPT_TIME, "s", "0", 0, 1e15, NULL,                                      \
     AT(launch_limit_ns),                                                                          \
     "after this time, its wait in a queue included, a cell that launch started is ended, and "    \
     "has failed; 0: never"}
/* clang-format on */

static const struct dpb_option sweep_rows[] = {
    {"repeats", DPB_OPT_INT, NULL, "3", 1, 1000, NULL, AT(repeats),
     "how often every cell is timed, in interleaved random order"},
    {"turns", DPB_OPT_STRING, NULL, "no", 0, 0, NULL, AT(turns),
     "yes: the cells run side by side, a short time each in turn, and conclusions are from ratios "
     "within a block of turns; or a turn's length: 0.5 s, 30 steps; each repeat starts them anew, "
     "1 by default"},
    {"budget", DPB_OPT_TIME, "s", "0", 0, 1e15, NULL, AT(budget_ns),
     "with turns: how long blocks of turns begin, in all; they end before once all ratios by the "
     "first cell are decided; 0: run.seconds for each start of a cell"},
    {"retry_disturbed", DPB_OPT_INT, NULL, "3", 0, 1000, NULL, AT(retry_disturbed),
     "how often a run that others disturbed is repeated at once; rows leave disturbed runs out"},
    {"limit_s", DPB_OPT_TIME, "s", "0", 0, 1e15, NULL, AT(limit_ns),
     "so long after the sweep began no run starts, and the table says what is missing; 0: never"},
    {"accuracy", DPB_OPT_INT, "steps", "0", 0, 1e9, NULL, AT(accuracy),
     "length of one more run for each strategy, for its test accuracy; 0: none. The run has the "
     "strategy's first cell of the most workers; rows of other settings have no accuracy then"},
    {"when", DPB_OPT_STRING, NULL, "", 0, 0, NULL, AT(when),
     "only cells for which this holds: SECTION.KEY OP VALUE [and | or ...], OP one of = != < <= > "
     ">=; empty: all"},
    {"skip_refused", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(skip_refused),
     "cells that cannot run are rows with their reasons; no: they are listed, and nothing runs"},
    ROWS_OF_BOTH,
    {"over", DPB_OPT_STRING, NULL, "", 0, 0, NULL, AT(over),
     "SECTION.KEY of a list that is no axis: each repeat takes the next value; empty: none"},
    {0},
};

static const char *const objectives[] = {"samples_per_s", "time_to_target", NULL};

static const struct dpb_option tune_rows[] = {
    {"objective", DPB_OPT_CHOICE, NULL, "samples_per_s", 0, 0, objectives, AT(objective),
     "the best setting has the most samples/s, or the least seconds to the target of [eval]"},
    {"threshold", DPB_OPT_REAL, "percent", "10", 0, 1000, NULL, AT(threshold),
     "the gain above which a later value of an ordered axis is taken"},
    {"repeats", DPB_OPT_INT, NULL, "1", 1, 1000, NULL, AT(repeats),
     "runs of a trial; with several, a gain also has to be shown by its 95 % interval"},
    {"retry_disturbed", DPB_OPT_INT, NULL, "3", 0, 1000, NULL, AT(retry_disturbed),
     "how often a run that others disturbed is repeated at once"},
    ROWS_OF_BOTH,
    {0},
};

static const struct dpb_option published_rows[] = {{0}}; /* its keys are cells */

const struct dpb_settings_section dpb_studies[DPB_STUDIES] = {
    {"sweep",
     "a product of settings, each cell a job: SECTION.KEY = a, b or 1..16 x2 or \"a,b\", \"c\"; "
     "[sweep.VALUE] has settings SECTION.KEY for one value of an axis",
     sweep_rows},
    {"tune", "a search for the best cell of a product of settings, written as in [sweep]",
     tune_rows},
    {"published",
     "figures of others for cells of [sweep]: SECTION.KEY VALUE SECTION.KEY VALUE ... = FIGURE, "
     "SOURCE, HARDWARE",
     published_rows},
};

static bool has_section(const struct dpb_config *config, const char *section)
{
    for (size_t i = 0; i < config->n_settings; i++)
        if (strcmp(config->settings[i].section, section) == 0)
            return true;
    return false;
}

bool dpb_sweep_wanted(const struct dpb_config *config)
{
    bool wanted = false;
    for (size_t i = 0; i < DPB_STUDIES; i++)
        wanted |= has_section(config, dpb_studies[i].name);
    return wanted;
}

bool dpb_tune_wanted(const struct dpb_config *config)
{
    return has_section(config, dpb_studies[DPB_STUDY_TUNE].name);
}
