/* test_conf_full.c - the experiments of conf/ with heavy networks: all cells, images as
 * published. */
#include "lib/confs.h"

int main(void)
{
    return confs_test(true);
}
