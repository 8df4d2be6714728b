/* needs: long plain stand-in */
/* test_conf.c - every experiment of conf/ says what it is for and runs; of those with heavy
 * networks one cell, with a light network where the experiment is not about networks. All of them:
 * tests/long/test_conf_full.c. */
#include "lib/confs.h"

int main(void)
{
    return confs_test(false);
}
