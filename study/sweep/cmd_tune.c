/* cmd_tune.c - `dpbench tune`: the search of a [tune]. */
#include "base/log.h"
#include "cli/cli.h"
#include "study/sweep/run.h"

static int tune(struct dpb_arguments *arguments)
{
    int code;
    if (dpb_tune_wanted(arguments->config))
        return dpb_sweep_run(arguments);
    dpb_status status = dpb_fail(DPB_USAGE,
                                 "%s has no [tune]: add the section, or give an axis as "
                                 "tune.SECTION.KEY=LIST",
                                 arguments->file);
    dpb_together_agree(arguments, status, NULL, &code);
    return code;
}

static int command_tune(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, NULL, argc, argv, tune);
}

DPB_PROGRAM("tune", command_tune)
