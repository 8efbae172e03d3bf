/* Files and folders of checkpoints.  Every function sets the error, with path and reason, when it fails. */
#ifndef TRAIN_CHECKPOINT_FILE_H
#define TRAIN_CHECKPOINT_FILE_H

#include <tutti/tutti.h>

#include "checkpoint_format.h"

enum { CHECKPOINT_PATH = 4096 };

/* ---- folders ----------------------------------------------------------------------------------------------- */

/* Finds the highest number of a complete checkpoint in the folder: 0 if there is none, or no folder. */
int checkpoint_find_latest(const char *folder, int64_t *number);

/* Makes the folder unless it exists, and locks it: fails while another job saves there, if the file system has locks.
 * Stores the lock, or -1 after an error. */
int checkpoint_folder_lock(const char *folder, int *lock);
void checkpoint_folder_unlock(int lock);

/* Removes what unfinished checkpoints have left, and makes the folder of checkpoint `number` under its unfinished name.
 */
int checkpoint_folder_begin(const char *folder, int64_t number);

/* Gives a checkpoint whose files are on disk its name. */
int checkpoint_folder_commit(const char *folder, int64_t number);

/* Removes an unfinished checkpoint.  Sets no error. */
void checkpoint_folder_discard(const char *folder, int64_t number);

/* Removes all complete checkpoints but the `keep` latest ones.  Sets no error. */
void checkpoint_remove_old(const char *folder, int keep);

/* ---- files ------------------------------------------------------------------------------------------------- */

/* Where a checkpoint is. */
struct checkpoint_place {
    const char *folder;
    int64_t number;
    bool partial; /* under its unfinished name */
};

/* True unless there is certainly nothing of the checkpoint's name. */
bool checkpoint_exists(const struct checkpoint_place *place);

int checkpoint_write_manifest(const struct checkpoint_place *place, const uint8_t *bytes, size_t n);

/* Reads a manifest.  The caller frees *bytes. */
int checkpoint_read_manifest(const struct checkpoint_place *place, uint8_t **bytes, size_t *n);

/* Writes a rank's file: for each sharded entry of the manifest, data[i].  Computes the hash of header and checksums. */
int checkpoint_write_shard(const struct checkpoint_place *place, const struct checkpoint_manifest *manifest, int shard,
                           const void *const *data, uint8_t *hash);

/* An open file of a rank, whose header and checksums have been checked. */
struct checkpoint_file {
    char path[CHECKPOINT_PATH];
    int fd, shard;
    const struct checkpoint_manifest *manifest;
    uint8_t *checksum; /* one after another */
    uint8_t *block;    /* memory for one block of data */
};

/* Opens a rank's file.  After an error it is closed. */
int checkpoint_open_shard(const struct checkpoint_place *place, const struct checkpoint_manifest *manifest, int shard,
                          struct checkpoint_file *file);

/* Reads elements [begin, begin + numel) of the file's elements of an entry, and checks their blocks. */
int checkpoint_read_elements(struct checkpoint_file *file, int entry, int64_t begin, int64_t numel, void *to);

void checkpoint_close_shard(struct checkpoint_file *file);

/* Sets the error for a place in the manifest. */
int checkpoint_bad_manifest(const struct checkpoint_place *place, size_t at, const char *what);

#endif
