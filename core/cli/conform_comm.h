/* conform_comm.h - the conformance suite of communicators: see conform/conform.h. */
#ifndef DPB_CORE_CLI_CONFORM_COMM_H
#define DPB_CORE_CLI_CONFORM_COMM_H

#include "base/config.h"
#include "conform/conform.h"

/* Runs short jobs with core's proof of the plugin's contract. `config`: the settings of the command
 * line. Fails only if nothing can be tried. */
dpb_status dpb_conform_comm(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                            const struct dpb_config *config);

#endif
