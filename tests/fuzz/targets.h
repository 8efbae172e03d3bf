/* All targets by name.  A target's corpus is corpus/NAME. */
#ifndef TESTS_TARGETS_H
#define TESTS_TARGETS_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *in, size_t bytes);
};

/* The last entry has no name. */
extern const struct fuzz_target fuzz_targets[];

void fuzz_tcp_message(const uint8_t *in, size_t bytes);
void fuzz_tcp_header(const uint8_t *in, size_t bytes);
void fuzz_tcp_handshake(const uint8_t *in, size_t bytes);
void fuzz_tcp_address(const uint8_t *in, size_t bytes);
void fuzz_tcp_name(const uint8_t *in, size_t bytes);
void fuzz_tcp_envelope(const uint8_t *in, size_t bytes);
void fuzz_store_request(const uint8_t *in, size_t bytes);
void fuzz_store_reply(const uint8_t *in, size_t bytes);
void fuzz_store_sent(const uint8_t *in, size_t bytes);
void fuzz_store_handshake(const uint8_t *in, size_t bytes);
void fuzz_store_seal(const uint8_t *in, size_t bytes);
void fuzz_store_file(const uint8_t *in, size_t bytes);
void fuzz_control_message(const uint8_t *in, size_t bytes);
void fuzz_fingerprint(const uint8_t *in, size_t bytes);
void fuzz_init_method(const uint8_t *in, size_t bytes);
void fuzz_backend_names(const uint8_t *in, size_t bytes);
void fuzz_algo(const uint8_t *in, size_t bytes);
void fuzz_tuning(const uint8_t *in, size_t bytes);
void fuzz_dlpack(const uint8_t *in, size_t bytes);
void fuzz_checkpoint(const uint8_t *in, size_t bytes);
void fuzz_flight_record(const uint8_t *in, size_t bytes);
void fuzz_plan(const uint8_t *in, size_t bytes);
void fuzz_node(const uint8_t *in, size_t bytes);

#endif
