package org.apache.kafka.common.record.internal;

/** Gives this line of releases the package to which the next one has moved the records: all files import both. */
final class Internal {
    private Internal() {
    }
}
