/* boards.h - what the board of a running job says, seen from outside of the job. */
#ifndef DPB_TESTS_LIB_BOARDS_H
#define DPB_TESTS_LIB_BOARDS_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the process, a launcher or that of a part, has a board. 0 is no process. */
bool board_is_there(pid_t launcher);
/* How many of the first `n` ranks on its board have made some steps, warm-up's among them; servers
 * make none and count. 0: no board yet. */
int board_ranks_with_steps(pid_t launcher, int n);
/* The step that rank 0 is in; -1: no board yet. */
long board_step(pid_t launcher);

#endif
