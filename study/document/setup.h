/*
 * setup.h - setups: on what runs were made. Which facts make a machine another one; the others are
 * its state: they change while it stays the same, as the memory of a guest does when its host takes
 * some back. docs/results.md.
 */
#ifndef DPB_STUDY_DOCUMENT_SETUP_H
#define DPB_STUDY_DOCUMENT_SETUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Of a path into a result: "machine.memory_bytes". */
bool dpb_setup_is_state(const char *path);

/* A setup is a machine without its state, a worker's share of it, versions, environment, inputs,
 * launcher, GPU. Runs have one setup where nothing of it differs. A plugin is compared with the
 * plugin of its name, an input with that of the same setting, so the cells of a sweep have one
 * setup.
 *
 * Adds the facts of a run to `facts`, an object, and replaces none: machine, versions, environment,
 * launcher and GPU; plugins by kind and name; inputs by setting and value. A refused run has none.
 */
void dpb_setups_learn(json_t *facts, const json_t *run);
/* The number of the setup with these facts in `setups`, an array that gets the new ones. `pool`:
 * see dpb_merge. */
size_t dpb_setups_add(json_t *setups, const json_t *facts, const char *pool);
/* All differences, of the machines' state or of all else, by path: an array with {value} for each
 * setup, {} where it has none. @owned. */
json_t *dpb_setups_differences(const json_t *setups, bool of_state);

/* The number of a run's setup in `setups`, those of its sweep, an array that gets the new ones. In
 * a sweep only versions, plugins and inputs separate setups. A refused run may have none: 0. */
size_t dpb_setups_within(json_t *setups, const json_t *run);
/* If the runs of a sweep have several setups, the sweep gets the axis "setup", each cell of a run
 * its setup, and warnings[] each fact that differs. */
void dpb_setups_split(json_t *document);
/* A copy of the run without the setup in its cell. @owned. */
json_t *dpb_setups_unsplit(const json_t *run);

#endif
