/*
 * model.h - the frame of a file of networks: what a network is published for, its plugin, and the
 * entry, of which all have one form.
 */
#ifndef MODEL_H
#define MODEL_H

#include "dpbench/plugin.h"

/* The hook `describe`, by the members of struct dpb_model_info. Images may have any size. */
#define MODEL_INFO(DESCRIBE, ...)                                          \
    static void DESCRIBE(const void *options, struct dpb_model_info *info) \
    {                                                                      \
        (void)options;                                                     \
        *info = (struct dpb_model_info){.any_image = true, __VA_ARGS__};   \
    }

/* The plugin of network NAME, a variable of that name; then members of struct dpb_plugin. */
#define MODEL(NAME, DESCRIBE, BUILD, ...)                                                  \
    static const struct dpb_model_ops NAME##_ops = {.describe = DESCRIBE, .build = BUILD}; \
    static const struct dpb_plugin NAME = {                                                \
        DPB_PLUGIN_HEAD(MODEL, NAME##_ops),                                                \
        .name = #NAME,                                                                     \
        .version = DPB_VERSION,                                                            \
        __VA_ARGS__,                                                                       \
    };

/* The entry of a file whose networks are FIRST and those that follow it (dpb_plugin.next). */
#define MODELS(FIRST)                                                      \
    const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host) \
    {                                                                      \
        (void)host;                                                        \
        return &(FIRST);                                                   \
    }

#endif
