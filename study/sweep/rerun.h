/*
 * rerun.h - `dpbench rerun RESULT.json`: runs a result's run once more, within limits for a
 * result that somebody sent.
 *
 * Settings that read files are those of result.inputs. Every other text of a plugin's options may
 * be the name of a file that the plugin writes, and is treated as one.
 */
#ifndef DPB_STUDY_SWEEP_RERUN_H
#define DPB_STUDY_SWEEP_RERUN_H

#include "cli/cli.h"

dpb_command_function dpb_command_rerun;

#endif
