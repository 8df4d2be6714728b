/* needs: long plain stand-in cells */
/* test_conf.c - every experiment of conf/ says what it is for and runs. Sweeps run one cell, or all
 * with DPB_ALL_CELLS. Experiments with heavy networks run one cell, with a
 * light network where the experiment is not about networks; all: tests/long/test_conf_full.c. */
#include "lib/confs.h"

int main(void)
{
    return confs_test(false);
}
