/*
 * nvml.h - the monitor of NVIDIA's GPUs, by the driver's NVML. No other part of CUDA is needed.
 */
#ifndef DEVICE_CUDA_NVML_H
#define DEVICE_CUDA_NVML_H

#include "dpbench/monitor.h"

extern const struct dpb_monitor_ops cuda_monitor;

#endif
