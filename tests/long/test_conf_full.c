/* test_conf_full.c - the experiments of conf/ with heavy networks: all cells. */
#include "lib/confs.h"

int main(void)
{
    return confs_test(true);
}
