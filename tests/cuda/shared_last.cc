/*
 * shared_last.cc - the end of what shared_first.cc begins.
 */
#include "kernel_host.h"

extern char stand_in_shared_first;
char stand_in_shared_last;

__attribute__((constructor)) static void tell()
{
    stand_in_shared(&stand_in_shared_first, &stand_in_shared_last);
}
