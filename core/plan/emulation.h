/*
 * emulation.h - device `emulated` and run.dilation: what a run has by them, and what it cannot
 * have.
 */
#ifndef DPB_CORE_PLAN_EMULATION_H
#define DPB_CORE_PLAN_EMULATION_H

#include "plan/plan.h"

/* Where the device emulates and the model is read from a file, a profile: device.profile is
 * model.file unless it was given. Before options are parsed. */
dpb_status dpb_emulation_adopt(struct dpb_experiment *experiment);
/* Where the device emulates: asks it by which profile (experiment->emulation). The batch of the
 * profile becomes the model's own, and a synthetic data source need not copy samples, which nobody
 * reads: data.place = device unless it was given. */
dpb_status dpb_emulation_settle(struct dpb_experiment *experiment);
/* How long an emulated accelerator updates an element, dilated; 0: the host does it. */
double dpb_emulation_element_ns(const struct dpb_experiment *experiment);
/* Refuses what no emulation has (accuracy, checkpoints), and a dilation without one; of steps also
 * one other than that of the network (DPBENCH_DILATION, which `dpbench hosts` sets). `dpbench comm`
 * and `dpbench links` time the dilated network as it is. */
dpb_status dpb_emulation_refuse(const struct dpb_experiment *experiment);
/* Refuses a network of tensors alone (DPB_OP_TENSOR) on a device that computes. */
dpb_status dpb_emulation_refuse_graph(const struct dpb_experiment *experiment);

#endif
