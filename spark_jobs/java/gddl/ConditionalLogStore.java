package gddl;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * Delta's log store for S3, but a commit is put on the condition that its number is free, so that drivers exclude one
 * another. Delta's own only looks first whether it is (docs/decisions/delta-files-and-commits.md). Compiled by Janino,
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
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.create();
        builder.overwrite(false);
        builder.recursive();
        builder.must(IF_ABSENT, "true");
        try {
            FSDataOutputStream out = (FSDataOutputStream) builder.build();
            while (actions.hasNext()) {
                out.write((actions.next() + "\n").getBytes("UTF-8"));
            }
            out.close();
        } catch (RemoteFileChangedException taken) {
            throw new java.nio.file.FileAlreadyExistsException(path.toString());
        } catch (FileAlreadyExistsException taken) {
            throw new java.nio.file.FileAlreadyExistsException(path.toString());
        }
    }
}
