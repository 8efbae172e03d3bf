/* What the launcher and the nodes that it has started over ssh send each other (ssh.h, node.h).
 *
 *     launcher -> node, the node's stdin: frames of a letter, four bytes of length (little-endian) and the contents
 *     node -> launcher: the ranks' output on stdout and stderr, and between the lines of stderr those of the node
 * itself, which begin with NODE_MARK
 *
 * A rank that writes a line with NODE_MARK can end its own job or change its exit status, and nothing else.  The frames
 * are parsed with checks: whoever starts a tutti-run may be any program. */
#ifndef RUN_NODE_WIRE_H
#define RUN_NODE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/store.h>

#include "sink.h"

#define NODE_MARK "\001tutti-node "
#define NODE_HELLO "hello "  /* and Tutti's version: the node has its configuration */
#define NODE_PORT "port "    /* node 0: of the ranks' store */
#define NODE_FAILED "failed" /* a rank has failed, and the node ends the others */
#define NODE_ENDED "ended "  /* and a rank's exit status: the others go on */
#define NODE_INPUT "input"   /* node 0: rank 0 can take more of the launcher's stdin */

enum { NODE_FRAME_HEAD = 5, NODE_FRAME_MAX = 16 << 20, NODE_INPUT_MAX = 64 << 10 };

enum node_frame {
    NODE_CONFIG = 'C', /* the first one */
    NODE_GO = 'G',     /* start the ranks: "ADDRESS PORT" of the store; port 0: run it */
    NODE_DATA = 'I',   /* bytes for rank 0's stdin, at most NODE_INPUT_MAX */
    NODE_END_DATA = 'E',
    NODE_SIGNAL = 'S', /* one byte: handle this signal */
    NODE_END = 'F',    /* end the ranks */
    NODE_LOST = 'L',   /* to node 0 of a job that goes on after failures: the number of a node that is lost */
    NODE_LAST = 'A',   /* to the same: no other node is left, so nothing but its own ranks needs the store */
    NODE_BEAT = 'B'    /* the launcher is there */
};

/* What a node is told.  The texts are in `memory`. */
struct node_config {
    const char *version; /* of the launcher's Tutti */
    const char *host;    /* the name that the launcher has for this node */
    const char *folder;  /* where the ranks start */
    const char *log_dir; /* "": none */
    const char *bind;    /* "": none */
    int node, nodes;
    int nproc; /* ranks here */
    int first_rank, world_size;
    bool goes_on; /* the other ranks go on when one fails */
    int replace;  /* then: the most replacements of the whole job */
    int64_t backoff_ms;
    int64_t grace_ms;
    int64_t wait_ms;   /* for the next frames, until the ranks start */
    int64_t silent_ms; /* then for any frame */
    bool no_prefix;
    uint8_t token[TUTTI_TOKEN_BYTES];
    char **variables; /* "NAME=value", ended by NULL */
    char **program;   /* ended by NULL */
    char *memory;
    size_t bytes;
};

/* Appends the configuration's text to `out`.  The caller frees out->data, which contains the token. */
void node_write_config(const struct node_config *config, struct buffer *out);

/* Reads a text of `bytes` bytes, which the configuration then owns.  Returns NULL, or what is wrong. */
const char *node_read_config(char *text, size_t bytes, struct node_config *config);
void node_free_config(struct node_config *config);

/* Writes the head of a frame. */
void node_write_head(char head[NODE_FRAME_HEAD], enum node_frame frame, size_t bytes);

/* Reads a number from 0 to `most`.  Returns -1 if the text is not one. */
int node_read_number(const char *text, int most);

/* Reads the number in a NODE_LOST.  Returns -1 if it is not that of a node other than 0. */
int node_read_lost(const char *data, size_t bytes, int nodes);

/* Reads the head of a frame.  Returns false if there is none like this. */
bool node_read_head(const char head[NODE_FRAME_HEAD], enum node_frame *frame, size_t *bytes);

#endif
