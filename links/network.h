/*
 * network.h - `dpbench links network`: TCP between the machines of a job, by pairs.
 */
#ifndef DPB_LINKS_NETWORK_H
#define DPB_LINKS_NETWORK_H

#include "cli/cli.h"

/* Under mpirun or srun; argv[0] is "network". */
int dpb_links_network(const struct dpb_command *self, int argc, char **argv);

#endif
