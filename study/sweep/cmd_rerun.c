/* cmd_rerun.c - the program of `dpbench rerun`. */
#include "study/sweep/rerun.h"

DPB_PROGRAM("rerun", dpb_command_rerun)
