/*
 * latency.h - latency from core to core. A hypervisor may move virtual processors between caches,
 * and then strategies that pass data from core to core change places with those that do not.
 */
#ifndef DPB_CORE_MACHINE_LATENCY_H
#define DPB_CORE_MACHINE_LATENCY_H

#include <stdint.h>

/* Nanoseconds that a cache line takes from hardware thread `a` to `b`, by the system's numbers: the
 * least mean of some hundred passes by two threads, in 0.1 ms, at most 2 ms. NaN: not known; they
 * are one, are not usable here, or others hold them. */
double dpb_core_latency_ns(uint16_t a, uint16_t b);

#endif
