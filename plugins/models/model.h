/*
 * model.h - the frame of a file of networks: a network's published settings, its plugin, and the
 * entry, which is the same for all.
 */
#ifndef MODEL_H
#define MODEL_H

#include "dpbench/plugin.h"

/* Defines the hook `describe` from members of struct dpb_model_info. Images may have any size. */
#define MODEL_INFO(DESCRIBE, ...)                                          \
    static void DESCRIBE(const void *options, struct dpb_model_info *info) \
    {                                                                      \
        (void)options;                                                     \
        *info = (struct dpb_model_info){.any_image = true, __VA_ARGS__};   \
    }

/* Defines NAME, the plugin of network NAME; members of struct dpb_plugin follow BUILD. */
#define MODEL(NAME, DESCRIBE, BUILD, ...) MODEL_IN(NAME, DESCRIBE, BUILD, NULL, __VA_ARGS__)

/* The same of a network that others publish in files of LAYOUT, a struct dpb_file_layout. */
#define MODEL_IN(NAME, DESCRIBE, BUILD, LAYOUT, ...)             \
    static const struct dpb_model_ops NAME##_ops = {             \
        .describe = DESCRIBE, .build = BUILD, .layout = LAYOUT}; \
    static const struct dpb_plugin NAME = {                      \
        DPB_PLUGIN_HEAD(MODEL, NAME##_ops),                      \
        .name = #NAME,                                           \
        .version = DPB_VERSION,                                  \
        __VA_ARGS__,                                             \
    };

/* Defines the entry of a file whose networks are FIRST and its successors (dpb_plugin.next). */
#define MODELS(FIRST)                                                      \
    const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host) \
    {                                                                      \
        (void)host;                                                        \
        return &(FIRST);                                                   \
    }

#endif
