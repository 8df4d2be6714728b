/*
 * host.c - core's functions, which every file of this device calls.
 */
#include "program.h"

const struct dpb_host *cpu_host;
