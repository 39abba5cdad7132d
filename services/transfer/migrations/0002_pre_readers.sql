-- The dataset versions of which a node may learn where they stand: those of the jobs that were placed on it.

CREATE TABLE readers (
  node text NOT NULL,
  tenant text NOT NULL,
  name text NOT NULL,
  dataset_version text NOT NULL,
  PRIMARY KEY (node, tenant, name, dataset_version)
);
