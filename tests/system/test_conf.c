/* needs: long plain stand-in */
/* test_conf.c - every experiment of conf/ says what it is for and runs; of those with heavy
 * networks one cell, with smaller images (tests/long/test_conf_full.c has all of them). */
#include "lib/confs.h"

int main(void)
{
    return confs_test(false);
}
