/*
 * conform.h - the public conformance suites: the tests of dpbench's own plugins, for any plugin of
 * the kind. `dpbench conform` runs them. The suite of comm starts jobs and stands in
 * conform/cmd_conform.c.
 *
 * A suite is a list of trials. Each prints its outcome: shown, refused (by name, as something that
 * the plugin cannot do) or FAILED with the reason. A suite continues after a failure.
 */
#ifndef DPB_CONFORM_CONFORM_H
#define DPB_CONFORM_CONFORM_H

#include "dpbench/plugin.h"

struct dpb_conform {
    uint32_t n_shown, n_refused, n_failed;
    char shown[1024]; /* trials since the last heading */
};

/* Begins a group of trials: prints its heading. */
void dpb_conform_heading(struct dpb_conform *conform, const char *format, ...) DPB_PRINTF(2, 3);
/* Counts the outcome of a trial; prints the message of dpb_first_error and clears it.
 * DPB_UNSUPPORTED and DPB_USAGE: refused. */
void dpb_conform_trial(struct dpb_conform *conform, dpb_status status, const char *name);
/* For a trial of a plugin's promise: a refusal becomes DPB_VERIFICATION. */
dpb_status dpb_conform_promised(dpb_status status);
/* Ends the group: prints the trials that were shown. */
void dpb_conform_end(struct dpb_conform *conform);

/* `options`: the plugin's, parsed. `reference`: the ops of device reference. */
void dpb_conform_device(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                        const void *options, const struct dpb_device_ops *reference);
/* A training step of a model, small and as core compiles it: the reference's loss, and gradients
 * that are the slopes of the device's own loss (slope.h), as many tensors as 2 s allow. */
dpb_status dpb_conform_device_model(const struct dpb_plugin *plugin, const void *options,
                                    const struct dpb_device_ops *reference,
                                    const struct dpb_plugin *model, const void *model_options);
/* A step of a model by a device that emulates; its options name a profile that fits the model. */
dpb_status dpb_conform_emulated(const struct dpb_plugin *plugin, const void *options,
                                const struct dpb_plugin *model, const void *model_options);
void dpb_conform_model(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                       const void *options, const struct dpb_device_ops *reference);
void dpb_conform_data(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                      const void *options);
void dpb_conform_codec(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                       const void *options);

#endif
