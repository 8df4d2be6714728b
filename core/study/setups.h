/*
 * setups.h - on what runs were made: machine, versions, environment, inputs, launcher, GPU. Runs
 * have one setup where nothing of it differs. A plugin is compared with the plugin of its name, an
 * input with that of the same setting, so the cells of a sweep have one setup.
 */
#ifndef DPB_CORE_STUDY_SETUPS_H
#define DPB_CORE_STUDY_SETUPS_H

#include <jansson.h>

/* Puts what the run was made on into `facts`, an object; what stands there stays. A run that was
 * refused does not say. */
void dpb_setups_learn(json_t *facts, const json_t *run);
/* The number of the setup with these facts in `setups`, an array that gets the new ones. */
size_t dpb_setups_add(json_t *setups, const json_t *facts);
/* All differences, by path: an array with {value} for each setup, {} where it has none. @owned. */
json_t *dpb_setups_differences(const json_t *setups);

#endif
