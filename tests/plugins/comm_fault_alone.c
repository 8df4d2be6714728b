/* comm_fault_alone.c - the same around a strategy whose workers do not exchange. */
#define FAULT_NAME "fault_alone"
#define FAULT_INNER "independent"
#define FAULT_CAPABILITIES DPB_COMM_ALONE
#include "comm_fault.c"
