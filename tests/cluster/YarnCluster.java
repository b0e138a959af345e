import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A YARN of one process: a resource manager and node managers, which start containers as processes of their own.
 *
 * Arguments: the folder for yarn-site.xml, which appears once all nodes are there, and the number of nodes. Standard
 * input is read until it ends; then the cluster stops.
 */
public final class YarnCluster {
  public static void main(String[] arguments) throws Exception {
    YarnConfiguration settings = new YarnConfiguration();
    settings.set("fs.defaultFS", "file:///");
    settings.setInt("yarn.nodemanager.resource.memory-mb", 16384);
    settings.setInt("yarn.scheduler.minimum-allocation-mb", 256);
    settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    settings.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
    settings.set("yarn.scheduler.capacity.root.queues", "default");
    settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
    settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", Integer.parseInt(arguments[1]), 1, 1);
    cluster.init(settings);
    cluster.start();
    if (!cluster.waitForNodeManagersToConnect(60_000)) {
      throw new IllegalStateException("the node managers did not connect");
    }
    Path site = Path.of(arguments[0], "yarn-site.xml");
    Path beside = Path.of(arguments[0], "yarn-site.tmp");
    try (OutputStream out = Files.newOutputStream(beside)) {
      Configuration found = cluster.getConfig();
      found.writeXml(out);
    }
    Files.move(beside, site);
    while (System.in.read() >= 0) {}
    cluster.stop();
    System.exit(0);
  }
}
