package gddl;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * Delta's log store for S3, but a commit is put on the condition that its number is free, so that drivers exclude one
 * another. Delta's own only looks first whether it is (docs/decisions/delta-and-ledger.md). Compiled by Janino,
 * which knows no newer Java.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final String IF_ABSENT = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration hadoop) {
        super(hadoop);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration hadoop) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, hadoop);
            return;
        }
        FileSystem files = path.getFileSystem(hadoop);
        byte[] commit = content(actions);
        try {
            put(files, path, commit);
        } catch (RemoteFileChangedException taken) {
            requireOwn(files, path, commit);
        } catch (FileAlreadyExistsException taken) {
            requireOwn(files, path, commit);
        }
    }

    private static byte[] content(Iterator actions) throws IOException {
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write((actions.next() + "\n").getBytes("UTF-8"));
        }
        return lines.toByteArray();
    }

    private static void put(FileSystem files, Path path, byte[] commit) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.create();
        builder.overwrite(false);
        builder.recursive();
        builder.must(IF_ABSENT, "true");
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        out.write(commit);
        out.close();
    }

    /**
     * S3A repeats a put whose answer was lost, and the second one meets what the first one wrote. No other commit has
     * this content: Delta writes a random `txnId` into each.
     */
    private static void requireOwn(FileSystem files, Path path, byte[] commit) throws IOException {
        FSDataInputStream in = files.open(path);
        try {
            if (!Arrays.equals(in.readAllBytes(), commit)) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
        } finally {
            in.close();
        }
    }
}
