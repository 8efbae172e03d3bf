/* Paths and error messages that the files of checkpoint_file.h share. */
#ifndef TRAIN_CHECKPOINT_PATH_H
#define TRAIN_CHECKPOINT_PATH_H

#include "checkpoint_file.h"

/* Sets the error "cannot VERB PATH: " and errno's text. */
int checkpoint_failed(const char *verb, const char *path);

/* Writes the path of a checkpoint's file, or of its folder if name is NULL.  Fails if the path is too long. */
int checkpoint_path(const struct checkpoint_place *place, const char *name, char path[CHECKPOINT_PATH]);

#endif
