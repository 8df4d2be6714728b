/* needs: long plain stand-in cells */
/* test_conf.c - every experiment of conf/ says what it is for, passes `check`, and runs. A sweep
 * runs one cell, or all with DPB_ALL_CELLS. Heavy networks run in tests/long/test_conf_full.c. */
#include "lib/confs.h"

int main(void)
{
    return confs_test(false);
}
